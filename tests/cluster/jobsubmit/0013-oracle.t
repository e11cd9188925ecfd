#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Random and hostile requests to a real slurmctld, judged by a second reading of the policy.
# BELLOWS_SEED=N repeats a run, BELLOWS_ROUND=N one round of it; BELLOWS_LONG=1 asks ten times as much.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

/usr/bin/python3 -c 'import yaml' 2>/dev/null || skip_all "python3-yaml is not installed"
seed=${BELLOWS_SEED:-13}
calls=3000
[[ -z ${BELLOWS_LONG:-} ]] || calls=30000

conf=$(mktemp "${TMPDIR:-/tmp}/bellows-oracle-XXXXXX")
trap 'rm -f "$conf"; tap_end' EXIT
# Nodes that never come up: enough of them, and of GPUs, that Slurm itself finds room for whatever is legal.
cat >"$conf" <<'CONF'
MinJobAge=2
GresTypes=gpu,nic,shard
Licenses=tool:4
AccountingStorageEnforce=associations,qos
NodeName=f[1-8] NodeAddr=127.0.0.1 Port=[60001-60008] Sockets=2 CoresPerSocket=160 ThreadsPerCore=1 RealMemory=65536 Gres=gpu:a100:264,gpu:v100:8,nic:4 Feature=fast State=DOWN
CONF
cluster_up --nodes=1 --gpus=4 --accounting --bellows-conf "$TAP_HOME/hostile.yaml" --slurm-conf "$conf"
as_root() { xc --user root "$@"; }
enter() { as_root sacctmgr --immediate "$@" >/dev/null || bail "sacctmgr $*"; }
# Only now: minicluster waits until it sees each node just once.
sed -i 's/^PartitionName=main Nodes=[^ ]*/PartitionName=main Nodes=ALL/' "$CLUSTER/etc/slurm.conf"
printf 'PartitionName=%s Nodes=ALL MaxTime=INFINITE State=UP\n' gpu1 gpu2 other closed >>"$CLUSTER/etc/slurm.conf"
as_root scontrol reconfigure || bail "slurmctld does not take the partitions"
enter add qos fast,fast2,slow
enter add account shared,typed,both,whole,ranged,tree,huge,gone,outside Cluster=bellows
enter add account leaf Cluster=bellows parent=tree
enter add account twig Cluster=bellows parent=leaf
# From 24.11 the accounts that exist do not inherit it.
enter modify account root,vision,speech set qos+=normal,fast,fast2,slow
enter add user alice,bob,carol account=vision,speech,shared,typed,both,whole,ranged,tree,leaf,twig,huge,gone,outside

cc -O1 -o "$CLUSTER/shared/hostile_client" "$TAP_HOME/hostile_client.c" -lslurm 2>"$conf" || bail "$(<"$conf")"
chmod 755 "$CLUSTER/shared/hostile_client"
before=$(as_root pgrep -x slurmctld)
TAP_LIMIT=7000 as_root /usr/bin/python3 -B "$TAP_HOME/hostile.py" "$CLUSTER/shared/hostile_client" \
  "$TAP_HOME/hostile.yaml" "$seed" "$calls" ${BELLOWS_ROUND:+"$BELLOWS_ROUND"}
is "$?" 0 "the policy allows every job that exists, and every allowed job is admitted"
is "$(as_root pgrep -x slurmctld)" "$before" "slurmctld is still the same"
done_testing

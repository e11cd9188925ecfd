#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# The node of a member is cut off from the network, but not from the file system, while callers call: idempotent calls all
# succeed, the others have run once or not at all, the pool is back at its size, and what ran on the node ends.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/pool/pool.sh
. "$TAP_HOME/pool/pool.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

[[ -x $build/pool/bellows-pool ]] || skip_all "bellows-pool is not built"
source_dir=$(realpath "$TAP_HOME/../..")
impatient_cluster_up --nodes=4 --gpus=1
home=$CLUSTER/shared/home/alice
install -m 644 "$source_dir/tests/unit/python/pool_member.py" "$TAP_HOME/pool/calls.py" "$home"

# All processors of a node: the keeper has one by itself, and one is free.
cat >"$home/index.sbatch" <<S
#!/bin/bash
#SBATCH --cpus-per-task=8
export PYTHONPATH=$source_dir/python PYTHONDONTWRITEBYTECODE=1 LEDGER=$home/ledger
exec bellows pool member -- python3 -c 'import pool_member; pool_member.Index().serve()'
S

pool() { xc bellows pool "$@"; }
members() { pool show index --json | jq -r ".members[] | $1"; } # FILTER
ready() { [[ $(pool show index --json | jq .ready) == "$1" ]]; }
is_replaced() { ready 2 && [[ -z $(members "select(.job == $1)") ]]; }                                   # JOB
goes_on() { poll 30 eval "(( \$(wc -l <'$home/ledger') > $(($(wc -l <"$home/ledger") + 20)) ))"; }
processes_of() { pids_of "$1" python3 pool_member && pids_of "$1" bellows-pool 'pool member'; }          # JOB
node_is() { [[ $(ask_slurm sinfo --noheader --nodes="$1" --format=%T) =~ $2 ]]; }                         # NODE REGEX

pool create index --min 2 --max 2 "$home/index.sbatch" >/dev/null
poll 60 ready 2 || bail "the pool has no two members: $(pool show index --json)"
touch "$home/ledger"
TAP_LIMIT=300 xc env PYTHONPATH="$source_dir/python" PYTHONDONTWRITEBYTECODE=1 python3 "$home/calls.py" index "$home/stop" "$home/ledger" \
  >"$home/calls" 2>&1 &
caller=$!
goes_on || bail "no calls run"

victim=$(members .job | head -n 1)
node=$(members "select(.job == $victim) | .node")
isnt "$node" "$(job_field "$(pool show index --json | jq .keeper_job)" BatchHost)" "a member has a node to itself"
processes=$(processes_of "$victim")
isnt "$processes" "" "with its processes"
mc cut-node "${node#n}"
ok "callers go on without a node that is cut off" goes_on
ok "its member is replaced" poll 90 is_replaced "$victim"
ok "and calls go on" goes_on
mc heal-node "${node#n}"
# slurmd there hears only now that the job is over. It asks, or is asked, within a minute or so.
# shellcheck disable=SC2086
all_gone() { ! kill -0 $processes 2>/dev/null; }
ok "what ran on the node ends when it is back" poll 120 all_gone
ok "and Slurm can use it" poll 60 node_is "$node" '^(idle|allocated)'
is "$(members .job | sort | uniq | wc -l)$(members "select(.job == $victim)")" 2 "the pool has its two members"

touch "$home/stop"
wait "$caller"
like "$(<"$home/calls")" "^[0-9]+ echoes, [0-9]+ done, [0-9]+ unknown, [0-9]+ refused, slowest .*, exact$" \
  "each call ran once at most, as told, and no idempotent one failed"
diag "$(<"$home/calls")"
ok "the pool is deleted" pool delete index
ok "and leaves nobody" poll 30 eval "[[ -z \$(pool_pids 'bellows-pool (member|keeper)|pool_member') ]]"
done_testing

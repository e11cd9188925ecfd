#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# The short form of tests/newer: Debian 13's Slurm on this machine, through minicluster --slurm. A job
# is admitted, contained and resized, and outlives one of its nodes.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

suite=trixie
top=$(cd "$TAP_HOME/../.." && pwd)
root=${BELLOWS_NEWER_DIR:-$top/build/newer}/$suite/root
[[ -d $root ]] || skip_all "there is no root directory of $suite: tests/newer $suite --build makes one in some minutes"
said=$(timeout "$(seconds 60)" "$top/tests/newer" "$suite" --build 2>&1) ||
  skip_all "the root directory of $suite is not up to date within a minute: $(tail -n 1 <<<"$said")"
# As the cluster sees it.
counter=/root/bellows/build/tests/cluster/programs/counter

impatient_cluster_up --slurm "$suite" --nodes=3 --gpus=4
number=$(cluster_id "$CLUSTER")
like "$(xc sinfo --version)" '^slurm-wlm 24\.11|^slurm 24\.11' "the cluster has the Slurm of $suite"
exits "which this machine's minicluster env cannot offer" 1 mc env

# Admission.
said=$(xc sbatch --framework=nonsense --wrap true 2>&1)
like "$said" 'nonsense' "a framework that does not exist is refused in words"
id=$(submit_counter job --gpus=2 -- --steps 1000000 --sleep-us 5000 --save-every 100)
ok "a job is admitted and saves" poll 60 commits_past "$id" 99 || diag "$(out_of job)"

# A container.
allow_images ""
is "$(xc srun --quiet --mpi=none --gres=none --container-image="$images/busybox.sqsh" cat /etc/environment)" \
  IMAGE_SAYS=hello "a step runs in an image"
is "$(xc srun --quiet --mpi=none --gpus=1 --container-image="$images/busybox.sqsh" ls /dev | grep -c '^nvidia[0-9]')" 1 \
  "which has the step's one GPU"

# A resize.
exits "the job is resized" 0 xc bellows resize --timeout 100 "$id" 6
ok "and trains on" poll 60 has_starts job 2
is "$(gpus_held "$id") $(last_start job world)" "6 2 6" "with what it asked for"

# A node.
hurts "$id"
mc kill-node 2
survives job "$id" "a dead node" '.'
let_end job "$id" 300
ends_well job "$id" "a dead node"
mc down
left_nothing "$number" "$CLUSTER"
done_testing

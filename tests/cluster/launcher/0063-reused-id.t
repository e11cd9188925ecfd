#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# slurmctld has lost its state, so the ids of jobs come back: no job goes on from another's training.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

cluster_up --nodes=2 --gpus=4
base=$CLUSTER/shared/checkpoints/alice
counts=(--steps 1000000 --sleep-us 5000 --save-every 50)

ended=$(submit_counter ended --gpus=2 -- --steps 200 --save-every 50)
cut=$(submit_counter cut --gpus=2 -- "${counts[@]}")
poll 40 job_is "$ended" COMPLETED || bail "the first job does not end"
poll 40 commits_past "$cut" 99 || bail "the second job does not commit"
xc scancel "$cut"
poll 40 nodes_idle || bail "the nodes do not become free"
steps=$(committed "$cut")

mc stop-ctld --signal KILL
rm -f "$CLUSTER"/spool/ctld/job_state*
mc start-ctld || bail "slurmctld does not start again"
poll 40 nodes_idle || bail "the nodes do not come back"

again=$(submit_counter again --gpus=2 -- "${counts[@]}")
other=$(submit_counter other --gpus=2 -- "${counts[@]}")
is "$again $other" "$ended $cut" "slurmctld gives the same ids again"
for name in again other; do
  poll 40 has_starts "$name" 1
  is "$(last_start "$name" step)" 0 "the job '$name' starts from scratch"
  like "$(out_of "$name")" "belonged to an older job with the number [0-9]+: it is now $base/[0-9]+\.before-[0-9]+," "and says so"
done
ok "it trains, though an older one with its number had finished" poll 40 commits_past "$again" 49
old=("$base/$cut".before-*)
is "$(readlink "${old[0]}/latest")" "$(printf 'step-%020d' "$steps")" "what the older one had saved is kept"
xc bellows resize --timeout 100 "$again" 3 >"$CLUSTER/resized" 2>&1 || diag "$(<"$CLUSTER/resized")"
poll 40 has_starts again 2
like "$(last_start again step)" '^[1-9]' "a later run of the job continues from its own checkpoint"
done_testing

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 120
# A save that the program did not wait for: what a dead rank had given to its agent is written and
# committed before the ranks start again, and a resize waits for what is in flight.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=2 --gpus=4

# Large enough that the step cannot be written by the time its rank is dead.
submit_counter dies --gpus=1 -- --steps 40 --sleep-us 1000 --save-every 10 --rows 20000000 \
  --async --die-at 20 >/dev/null
poll 60 has_starts dies 2 || bail "the job does not start again: $(out_of dies | tail -n 8)"
is "$(last_start dies step)" 20 "kill -9 of a rank right after it gave step 20: on from step 20"
finished() { log_of "$1" | grep -q "^finish step=$2 "; }
ok "and it comes to its end" poll 40 finished dies 40

resizes=$(submit_counter resizes --gpus=1 -- --steps 1000000 --sleep-us 1000 --save-every 5 \
  --rows 100000 --async)
poll 40 commits_past "$resizes" 20 || bail "the job does not commit: $(out_of resizes | tail -n 8)"
before=$(committed "$resizes")
ok "a resize with saves in flight" poll 40 xc bellows resize "$resizes" 2
poll 40 has_starts resizes 2 || bail "the job does not start again: $(out_of resizes | tail -n 8)"
is "$(last_start resizes world)" 2 "the job continues with two ranks"
step=$(last_start resizes step)
ok "from a step that is not older than the last one seen" test "$step" -ge "$before"
xc scancel "$resizes"
done_testing

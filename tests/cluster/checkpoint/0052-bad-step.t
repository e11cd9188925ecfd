#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# A block of the newest checkpoint is damaged at rest, in what only one of the ranks reads: all ranks
# go on from the step before, and the launcher says which bytes of which file. Without a good step
# the job fails.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

cluster_up --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice

run() { # NAME: prints the job
  submit_counter "$1" --gpus=2 --nodes=2 \
    --export=ALL,RUN_OPTIONS=--checkpoint-dir=mine -- \
    --steps 35 --sleep-us 1000 --save-every 10 --rows 100000
}
# The last byte of a rank's shard is one of its array: damage STEP RANK
damage() {
  local file size byte
  file=$home/mine/step-$(printf '%020d' "$1")/shard-0000$2-of-00002.h5
  size=$(stat -c %s "$file") || return
  byte=$(tail -c 1 "$file" | od -An -tu1)
  # shellcheck disable=SC2059
  printf "\\$(printf %o $((byte ^ 16)))" | dd of="$file" bs=1 seek=$((size - 1)) conv=notrunc status=none
}

id=$(run first) || bail "the first job is refused"
poll 60 job_is "$id" COMPLETED || bail "the first job does not end: $(out_of first | tail -n 8)"
damage 30 1
id=$(run second)
poll 60 job_is "$id" COMPLETED || bail "the second job does not end: $(out_of second | tail -n 8)"
is "$(last_start second step) $(last_start second world)" "20 2" "both ranks continue from the step before"
# The program holds every value it gets back against what it must be.
is "$(log_of second | tail -n 1 | cut -d' ' -f1,2)" "finish step=35" "with the values of that step"
like "$(out_of second)" \
  'rank [01] on n[12] cannot continue from step 30: .*/step-0*30/shard-00001-of-00002.h5 is damaged: the bytes from [0-9]* to [0-9]* ' \
  "the launcher says which bytes of which file"
like "$(out_of second)" 'the checkpoint of step 30 is not used: .*shard-00001-of-00002.h5 is damaged' \
  "and that the step is skipped"
like "$(events_of "$id"; cat "$home/mine/events.jsonl")" 'back to step 20' "so does the job's history"
is "$(out_of second | grep -c 'failures without progress')" 0 "no failure is counted"

for step in 10 20 30; do damage "$step" 0; done
id=$(run third)
poll 60 job_is "$id" FAILED
ok "without a good step the job fails" job_is "$id" FAILED
like "$(out_of third)" 'giving up: no checkpoint can be used, all 3 are damaged; step 30: .*shard-00000-of-00002.h5' \
  "and says why"
isnt "$(last_start third step)" 0 "no rank began at the start"
done_testing

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 480
# A node that is cut off from slurmctld but not from the file system, under a program that saves by itself:
# the job's next run has the checkpoints to itself, and says itself when it has finished. One that returns as soon as it
# is set down, while it still ends the job's last run, gets the next.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice
printf '#!/bin/bash\nexec bellows run'"$run_kind"' --checkpoint-signal=USR1 -- %s signal %s/own 1000000\n' \
  "$TAP_HOME/programs/own_saver.py" "$home" >"$home/own.sh"
id=$(submit -- --framework=plain --gpus-range=1-8 --gpus=2 --job-name=own --output="$home/own.out" \
  --open-mode=append own.sh)
poll 60 has_starts own 1 || bail "the job does not start: $(out_of own | tail -n 5)"
ranks=$(pids_of "$id" python3 own_saver)
isnt "$ranks" "" "the first run has ranks"
finished=$(tr '\0' '\n' <"/proc/${ranks%%$'\n'*}/environ" | sed -n 's/^BELLOWS_FINISHED_FILE=//p')
# shellcheck disable=SC2086
all_gone() { ! kill -0 $ranks 2>/dev/null; }

batch=$(xc --user root squeue --noheader --jobs="$id" --format=%B)
mc cut-node "${batch#n}"
ok "the job runs on the other node" poll 90 has_starts own 2
ok "the ranks that were cut off are ended" poll 30 all_gone
left() { out_of own | grep -qa 'owns the checkpoint directory now, and this is .*: leaving it to that attempt'; }
ok "their launcher says why" poll 10 left

# As a program does that comes to its end there: the other one has yet to.
xc touch "$finished"
kill_one "$id" python3 own_saver || bail "there is no rank to kill"
ok "what is said there that it has finished does not end the job" poll 60 has_starts own 3
is "$(job_field "$id" JobState)" RUNNING "it runs"
mc heal-node "${batch#n}"
xc scancel "$id"
poll 40 job_is "$id" CANCELLED

node_is() { [[ $(xc --user root sinfo --noheader --nodes="$1" --format=%T) == "$2" ]]; }
poll 60 node_is "n${batch#n}" idle || bail "the node does not return"
other=n$((3 - ${batch#n}))
xc --user root scontrol update nodename="$other" state=drain reason=test
id=$(submit -- --framework=plain --gpus-range=1-8 --gpus=2 --job-name=back --output="$home/back.out" \
  --open-mode=append own.sh)
poll 60 has_starts own 4 || bail "the job does not start: $(out_of back | tail -n 5)"
mc cut-node "${batch#n}"
is_requeued() { [[ $(job_field "$id" Restarts) == 1 ]]; }
ok "the job loses its node" poll 90 is_requeued
mc heal-node "${batch#n}"
ok "and starts again on it" poll 120 has_starts own 5
ok "which Slurm does not drain" node_is "n${batch#n}" mixed
xc scancel "$id"
poll 40 job_is "$id" CANCELLED
xc --user root scontrol update nodename="$other" state=resume
done_testing

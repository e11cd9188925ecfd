#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# What srun does not tell: ranks that die inside a command that ends with status 0 or goes on, and ranks
# that speak like srun. And a resize whose checkpoint fails says so.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=1 --gpus=4
home=$CLUSTER/shared/home/alice

# Each rank is a shell with this command: submit_shell NAME GPUS OPTIONS-OF-RUN COMMAND
submit_shell() {
  printf '#!/bin/bash\nexec bellows run'"$run_kind"' %s -- sh -c %q\n' "$3" "$4" >"$home/$1.sh"
  submit -- --framework=digits --gpus-range=1-4 --gpus="$2" --output="$home/$1.out" "$1.sh"
}

piped=$(submit_shell piped 2 '' \
  "$counter --steps 300 --sleep-us 10000 --save-every 50 --die-at 100 --log $home/piped.log | cat")
forged=$(submit_shell forged 1 '--max-restarts 0' 'echo "srun: error: Node failure on n1" >&2; exit 3')
ok "ranks that die in a pipe: they start again" poll 60 has_starts piped 2
like "$(causes "$piped")" 'ranks 0-1 on n1 died, although the command that started them ended with status 0; back to step' \
  "and the history says so"
is "$(last_start piped step)" 100 "from their checkpoint"
poll 60 job_is "$piped" COMPLETED
is "$(job_field "$piped" JobState) $(starts piped) $(log_of piped | grep -c '^finish step=300 ')" "COMPLETED 2 1" \
  "and end once they have finished"
poll 60 job_is "$forged" FAILED
like "$(out_of forged)" 'giving up: rank 0 on n1 exited with status 3' "a rank that speaks like srun is not believed"
is "$(job_field "$forged" ExitCode)" "3:0" "nor does the cluster pay for it"

# One rank is dead, the other waits for it as in a collective, and both shells live.
waits=$(submit_shell waits 2 '' \
  "$counter --steps 100000 --sleep-us 10000 --save-every 20 --log $home/waits.log; sleep 1000")

# A save that fails at a stop.
xc --user root --node 1 bash -c "mkdir -p $home/small && mount -t tmpfs -o size=4m,mode=777 none $home/small"
full=$(submit_counter full --gpus-range=1-4 --gpus=1 --export=ALL,RUN_OPTIONS="--checkpoint-dir=$home/small/full" \
  -- --steps 100000 --sleep-us 10000 --save-every 50 --keep-going)
# Far enough for the launcher to have heard of a few steps.
poll 40 commits_past "$waits" 399
mapfile -t pids < <(pids_of "$waits" counter .)
kill -STOP "${pids[0]}"
kill -KILL "${pids[1]}"

poll 40 xc --user root --node 1 test -e "$home/small/full/latest"
xc --user root --node 1 dd if=/dev/zero of="$home/small/filler" bs=4k count=2000 status=none
xc bellows resize --timeout 60 "$full" 2 >"$home/progress" 2>&1
like "$(cat "$home/progress")" 'step [0-9]+ could not be saved; the job continues from step [0-9]+' \
  "a resize whose checkpoint fails says so"
xc --user root --node 1 rm -f "$home/small/filler"
ok "and the job continues" poll 60 has_starts full 2
is "$(last_start full step) $(last_start full world)" \
  "$(sed -n 's/.*continues from step \([0-9]*\).*/\1/p' "$home/progress") 2" "from there, at the new size"
xc scancel "$full"

ok "a dead rank that another waits for: they start again" poll 60 has_starts waits 2
like "$(causes "$waits")" 'no progress for 3[0-9] s \(the limit is 30 s\): rank [01] on n1 stays at step' \
  "and the history says what waited"
xc scancel "$waits"
done_testing

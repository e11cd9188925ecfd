#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# Every kind of failure is noticed, named and survived: ranks that hang or die or never start, a full
# file system, a cut network, an outage of slurmctld, a drained node. Nobody helps.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$(dirname "$0")/jobs.sh"

impatient_cluster_up --nodes=3 --gpus=4
home=$CLUSTER/shared/home/alice

test_since() { (($(now_us) - $1 > $2 * 1000000)); } # MICROSECONDS SECONDS
ends_well() { # NAME ID WHAT
  ok "$3: the job ends COMPLETED" poll 60 job_is "$2" COMPLETED
  like "$(log_of "$1")" 'finish step=600 ' "$3: with the right result"
}
count_to_600=(--steps 600 --sleep-us 20000 --save-every 50)

# A rank that is stopped: the others wait for it in their next save.
hung=$(submit_counter hung --gpus=2 --export=ALL,RUN_OPTIONS=--hang-floor=3 -- "${count_to_600[@]}")
# Suspended for longer than its floor: everything stops, and nothing hangs.
suspended=$(submit_counter suspended --gpus=2 --export=ALL,RUN_OPTIONS=--hang-floor=3 -- "${count_to_600[@]}")
# A rank that is killed, by hand and for its memory.
killed=$(submit_counter killed --gpus=2 -- "${count_to_600[@]}")
poll 40 commits_past "$suspended" 49 || bail "the job does not commit: $(out_of suspended | tail -n 5)"
xc --user root scontrol suspend "$suspended"
suspended_at=$(now_us)

poll 40 commits_past "$killed" 49
began=$(now_us)
kill_one "$killed" counter .
ok "kill -9 of a rank: it is started again" poll 40 has_starts killed 2
took "kill -9 of a rank" "$began" "none of Slurm's timeouts"
like "$(causes "$killed")" 'rank [01] on n[1-3] was killed by signal 9 \(Killed\); back to step' \
  "kill -9 of a rank: the history names rank, node and signal"

poll 40 commits_past "$hung" 49
began=$(now_us)
kill -STOP "$(pids_of "$hung" counter . | tail -n 1)"
ok "SIGSTOP of a rank: the ranks are started again" poll 60 has_starts hung 2
took "SIGSTOP of a rank" "$began" "the floor of 3 s and the way to the next save are part of it"
like "$(causes "$hung")" 'no progress for [0-9]+ s .*: rank [01] on n[1-3] stays at step [0-9]+, while others' \
  "SIGSTOP of a rank: the history names who did not advance"

# Programs that do not start, or not all of them.
printf '#!/bin/bash\nexec bellows run -- ./no-such-program\n' >"$home/missing.sh"
missing=$(submit -- --framework=digits --gpus-range=1-8 --gpus=2 --output="$home/missing.out" missing.sh)
printf '#!/bin/bash\nexec bellows run --start-limit 4 --max-restarts 0 -- bash -c %s\n' \
  "'((SLURM_PROCID == 1)) || exec $counter --steps 100000; sleep 1000'" >"$home/partial.sh"
partial=$(submit -- --framework=digits --gpus-range=1-8 --gpus=2 --output="$home/partial.out" partial.sh)
printf '#!/bin/bash\nexec bellows run --max-restarts 0 -- bash -c %s\n' \
  "'((SLURM_PROCID == 1)) || exec $counter --steps 100000; sleep 3; kill -KILL \$\$'" >"$home/early.sh"
early=$(submit -- --framework=digits --gpus-range=1-8 --gpus=2 --output="$home/early.out" early.sh)
ok "a missing program ends the job" poll 30 job_is "$missing" FAILED
like "$(out_of missing)" 'giving up: the program could not be executed: .*no-such-program: No such file' \
  "and is named"
is "$(grep -c 'ranks start' "$home/missing.out") $(job_field "$missing" ExitCode)" "1 2:0" \
  "at once, with the status that srun gave"
ok "a rank that does not start within the limit ends the start" poll 40 job_is "$partial" FAILED
like "$(out_of partial)" '1 of 2 ranks did not start within 4 s: rank 1 on n[1-3]' "and is named with its node"
ok "a rank that dies before it joins ends the start" poll 40 job_is "$early" FAILED
like "$(out_of early)" 'giving up: rank 1 on n[1-3] was killed by signal 9' \
  "and is named, not the one that srun kills then"

poll 15 test_since "$suspended_at" 8
xc --user root scontrol resume "$suspended"

ends_well hung "$hung" "SIGSTOP of a rank"
ends_well killed "$killed" "kill -9 of a rank"
ends_well suspended "$suspended" "a suspended job"
is "$(starts suspended) $(out_of suspended | grep -c 'no progress')" "1 0" "a suspended job is not taken for hung"

# A full file system: one program dies of a failed save, the other goes on.
xc --user root --node 1 bash -c "mkdir -p $home/small && mount -t tmpfs -o size=4m,mode=777 none $home/small"
in_small=(--gpus=1 --nodelist=n1)
dies=$(submit_counter dies "${in_small[@]}" --export=ALL,RUN_OPTIONS="--max-restarts=1 --checkpoint-dir=$home/small/dies" \
  -- "${count_to_600[@]}")
goes=$(submit_counter goes "${in_small[@]}" --export=ALL,RUN_OPTIONS="--checkpoint-dir=$home/small/goes" \
  -- "${count_to_600[@]}" --keep-going)
small() { xc --user root --node 1 "$@"; }
poll 40 small test -e "$home/small/dies/latest" -a -e "$home/small/goes/latest"
small dd if=/dev/zero of="$home/small/filler" bs=4k count=2000 status=none
ok "a full file system: the program that does not bear it dies of it" \
  poll 30 grep -q 'after a save had failed: No space left' "$home/dies.out"
full_since=$(now_us)
poll 20 test_since "$full_since" 10
small rm "$home/small/filler"
poll 60 grep -q 'saving works again' "$home/goes.out"
ends_well dies "$dies" "a full file system for 10 s"
ok "a full file system for 10 s: for which it was tried more often than a program is" \
  test "$(grep -c 'No space left on device$' "$home/dies.out")" -gt 3
ends_well goes "$goes" "a full file system that the program bears"
is "$(starts goes) $(grep -c 'could not be saved' "$home/goes.out")" "1 1" "it goes on, and is told once"
done_testing

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# Ranks that hang or die or never start: that is noticed, named and survived. Nobody helps.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=3 --gpus=4
home=$CLUSTER/shared/home/alice

count_to_600=(--steps 600 --sleep-us 20000 --save-every 50)

# Digits: the others wait for a rank that is stopped in MPI, and know nothing of it.
top=$(dirname "$(dirname "$TAP_HOME")")
digits=$build/examples/digits/digits
stuck=""
if [[ -n $has_pmix && -x $digits && -r $build/data/digits.csv.gz ]]; then
  install -m 644 "$build/data/digits.csv.gz" "$CLUSTER/shared/digits.csv.gz"
  printf '#!/bin/bash\nexec bellows run --hang-floor=3 -- %s --epochs 20 --hidden 64 --ledger ledger\n' "$digits" >"$home/stuck.sh"
  stuck=$(submit --env BELLOWS_DIGITS="$CLUSTER/shared/digits.csv.gz" -- --framework=digits --gpus-range=1-8 \
    --gpus=2 --cpus-per-task=1 --output="$home/stuck.out" stuck.sh)
fi
# A rank that is stopped: the others wait for it in their next save.
hung=$(submit_counter hung --gpus=2 --export=ALL,RUN_OPTIONS=--hang-floor=3 -- "${count_to_600[@]}")
# Suspended for longer than its floor: everything stops, and nothing hangs.
suspended=$(submit_counter suspended --gpus=2 --export=ALL,RUN_OPTIONS=--hang-floor=3 -- "${count_to_600[@]}")
# A rank that is killed.
killed=$(submit_counter killed --gpus=2 -- "${count_to_600[@]}")
if [[ -n $stuck ]]; then
  poll 40 commits_past "$stuck" 39 || bail "digits does not commit: $(out_of stuck | tail -n 5)"
  hurts "$stuck"
  kill -STOP "$(pids_of "$stuck" digits . | tail -n 1)"
fi
poll 40 commits_past "$suspended" 49 || bail "the job does not commit: $(out_of suspended | tail -n 5)"
xc --user root scontrol suspend "$suspended"
suspended_at=$(now_us)
poll 40 commits_past "$killed" 49
hurts "$killed"
kill_one "$killed" counter .
poll 40 commits_past "$hung" 49
hurts "$hung"
kill -STOP "$(pids_of "$hung" counter . | tail -n 1)"

# Programs that do not start, or not all of them.
printf '#!/bin/bash\nexec bellows run %s -- ./no-such-program\n' "$run_kind" >"$home/missing.sh"
missing=$(submit -- --framework=digits --gpus-range=1-8 --gpus=2 --output="$home/missing.out" missing.sh)
printf '#!/bin/bash\nexec bellows run %s -- /usr/bin/python3 -c "import no_such_module"\n' "$run_kind" >"$home/module.sh"
module=$(submit -- --framework=digits --gpus-range=1-8 --gpus=2 --output="$home/module.out" module.sh)
printf '#!/bin/bash\nexec bellows run %s --start-limit 4 --max-restarts 0 -- bash -c %s\n' "$run_kind" \
  "'((SLURM_PROCID == 1)) || exec $counter --steps 100000; sleep 1000'" >"$home/partial.sh"
partial=$(submit -- --framework=digits --gpus-range=1-8 --gpus=2 --output="$home/partial.out" partial.sh)
printf '#!/bin/bash\nexec bellows run %s --max-restarts 0 -- bash -c %s\n' "$run_kind" \
  "'((SLURM_PROCID == 1)) || exec $counter --steps 100000; sleep 3; kill -KILL \$\$'" >"$home/early.sh"
early=$(submit -- --framework=digits --gpus-range=1-8 --gpus=2 --output="$home/early.out" early.sh)
# slurmd's directory keeps what a node that died had there, and steps of a job that was requeued have the
# old numbers: Slurm's PMIx plugin then can't start the step, and srun's status of that is 0.
unstarted=$(submit_counter unstarted --hold --gpus=2 -- --steps 20)
if [[ -n $has_pmix ]]; then
  for i in 1 2 3; do xc --node "$i" --user root touch "/run/slurmd/stepd.slurm.pmix.$unstarted.1"; done
  xc scontrol release "$unstarted"
fi
ok "a missing program ends the job" poll 30 job_is "$missing" FAILED
like "$(out_of missing)" 'giving up: the program could not be executed: .*no-such-program: No such file' \
  "and is named"
is "$(grep -cE 'ranks? starts? ' "$home/missing.out") $(job_field "$missing" ExitCode)" "1 2:0" \
  "at once, with the status that srun gave"
ok "a module that Python does not find ends the job" poll 30 job_is "$module" FAILED
like "$(grep -cE 'ranks? starts? ' "$home/module.out") $(out_of module)" "^1 .*giving up: .*ModuleNotFoundError: No module named 'no_such_module'" \
  "at once, and is named"
ok "a rank that does not start within the limit ends the start" poll 40 job_is "$partial" FAILED
like "$(out_of partial)" '1 of 2 ranks did not start within 4 s: rank 1 on n[1-3]' "and is named with its node"
ok "a rank that dies before it joins ends the start" poll 40 job_is "$early" FAILED
like "$(out_of early)" 'giving up: rank 1 on n[1-3] was killed by signal 9' \
  "and is named, not the rank that srun kills afterwards"

if [[ -n $has_pmix ]]; then
  ends_well unstarted "$unstarted" "a step that Slurm can't start on its nodes"
  like "$(out_of unstarted)" 'ranks? [01-]+ on n[1-3].* could not be started: .*; the log of slurmd there' \
    "the ranks are named"
  like "$(xc bellows history "$unstarted")" 'ranks? [01-]+ on n[1-3].* could not be started: .*; back to what the program may have' \
    "and the history gives the cause"
  is "$(starts unstarted) $(grep -c 'without libbellows' "$home/unstarted.out")" "1 0" \
    "no more is concluded about the program"
else
  skip "a step that Slurm can't start on its nodes" "this Slurm has no mpi/pmix"
  xc scancel "$unstarted"
fi

poll 15 since "$suspended_at" 8
xc --user root scontrol resume "$suspended"

recovers killed "$killed" "kill -9 of a rank" 'rank [01] on n[1-3] was killed by signal 9 \(Killed\); back to step'
recovers hung "$hung" "SIGSTOP of a rank" \
  'no progress for [0-9]+ s .*: rank [01] on n[1-3] stays at step [0-9]+, while others'
if [[ -n $stuck ]]; then
  ok "SIGSTOP of a rank for which others wait in MPI: the job ends COMPLETED" poll 60 job_is "$stuck" COMPLETED ||
    diag "$(out_of stuck | tail -n 8)"
  resumed=$(out_of stuck | sed -n 's/^resumed at step \([0-9]*\) .*/\1/p')
  ok "it continues from step $resumed; nothing that was committed is lost" test "$resumed" -ge "${hurt_step[$stuck]}"
  back=$(events_of "$stuck" | sed -n '/"restored step/ s/.*"time":\([0-9.]*\).*/\1/p' | tail -n 1)
  told=$(told_since "$stuck" "$(printf '%.6f' "$back" | tr -d .)")
  like "$told" 'no progress for [0-9]+ s ' "the history gives the cause"
  diag "SIGSTOP of a rank for which others wait in MPI: from the fault to training again: ${told%%$'\n'*}"
  like "$(out_of stuck)" 'accuracy: 9[0-9]\.[0-9] %' "with the right result"
  ok "of every sample of every epoch once" "$top/tests/lib/check-ledger" "$home/ledger"
else
  skip "SIGSTOP of a rank for which others wait in MPI" "there is no MPI, or digits is not built"
fi
ends_well suspended "$suspended" "a suspended job"
is "$(starts suspended) $(out_of suspended | grep -c 'no progress')" "1 0" "a suspended job is not considered hung"
done_testing

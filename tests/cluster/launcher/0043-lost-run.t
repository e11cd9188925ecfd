#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# slurmctld saves its state every few seconds. One that is killed before that comes back without the
# newest run of a job, and takes a job that runs for one that waits. Nobody helps the job then.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=2 --gpus=4
state=$CLUSTER/spool/ctld/job_state

saved_with() { grep -qaF "$1" "$state"; }
runs_since() { # JOB SECONDS
  local start
  start=$(date --date="$(job_field "$1" StartTime)" +%s) && (($(date +%s) - start > $2))
}
# The extern step would make slurmctld look at the node; Slurm now and then starts a run without one.
kill_extern_steps() { # JOB
  pkill -KILL -f "slurmstepd: \[$1\.extern\]" || return 0
}

# Makes slurmctld forget the run of a job, with a fault to the job meanwhile: forget NAME COMM REGEX
forget() {
  local id
  id=$(submit_counter "$1" --gpus=6 --begin=now+6 -- --steps 10000000 --sleep-us 5000 --save-every 50) ||
    bail "the job cannot be submitted"
  poll 6 saved_with "$1" || bail "slurmctld did not save the waiting job"
  cp "$state" "$state.waiting"
  poll 30 commits_past "$id" 49 || bail "the job does not commit"
  # In its first two seconds Slurm's own slurmd may take the end of a run for that of the one before.
  poll 10 runs_since "$id" 2 || bail "the job does not run"
  mc stop-ctld --signal KILL
  kill_extern_steps "$id"
  kill_one "$id" "$2" "$3" || bail "there is no $2 to kill"
  before=$(committed "$id")
  cp "$state.waiting" "$state"
  mc start-ctld || bail "slurmctld does not start again"
  job=$id
}

goes_on() { # NAME WHAT
  if ! poll 60 has_starts "$1" 2; then
    fail "$2: the job continues" "$(job_field "$job" JobState), $(job_field "$job" Reason), start $(job_field "$job" StartTime); $(out_of "$1" | tail -n 5)"
  else
    ok "$2: the job continues from what was committed" test "$(last_start "$1" step)" -ge "$before"
    ok "$2: and commits" poll 40 commits_past "$job" "$(last_start "$1" step)"
    is "$(job_field "$job" JobState)" RUNNING "$2: slurmctld knows that it runs"
  fi
  unlike "$(xc --user root sinfo --noheader --format=%T)" 'drain' "$2: no node is drained"
  xc scancel "$job"
  poll 40 nodes_idle || fail "$2: the nodes do not become free"
}

forget ranked counter .
goes_on ranked "a rank dies and the run is lost"
like "$(out_of ranked)" 'slurmctld was restarted and believes that this run never began' \
  "the launcher says what happened"
like "$(causes "$job")" 'rank [0-9] on n[12] was killed by signal 9 \(Killed\); slurmctld was restarted' "and the history"
forget launched bellows 'bellows run'
goes_on launched "the launcher dies and the run is lost"
done_testing

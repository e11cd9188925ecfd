#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# kill -9 of everything there is, while training and while checkpointing: both jobs go on from the
# last committed checkpoint, and nobody helps them.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$(dirname "$0")/jobs.sh"

impatient_cluster_up --nodes=3 --gpus=4
home=$CLUSTER/shared/home/alice
export TAP_LIMIT=120

# One job trains and now and then saves; the other does nothing but save.
train=$(submit_counter train --gpus=6 -- --steps 10000000 --sleep-us 5000 --save-every 100)
save=$(submit_counter save --gpus=2 -- --steps 10000000 --sleep-us 1000 --save-every 1 --rows 20000)
poll 40 commits_past "$train" 99 || bail "the training job does not commit"
poll 40 commits_past "$save" 20 || bail "the saving job does not commit"

# Does a fault to both jobs and watches them come back:
# survive WHAT SECONDS RESTARTS COMMAND...   (RESTARTS: requeues it may cost)
survive() {
  local what=$1 seconds=$2 requeues=$3 id name step began
  shift 3
  local -A committed_before starts_before restarts_before
  for id in "$train" "$save"; do
    name=$(job_field "$id" JobName)
    committed_before[$id]=$(committed "$id")
    starts_before[$id]=$(starts "$name")
    restarts_before[$id]=$(job_field "$id" Restarts)
  done
  began=$(now_us)
  "$@" || { fail "$what" "the fault could not be done"; return 0; }
  for id in "$train" "$save"; do
    name=$(job_field "$id" JobName)
    if ! poll "$seconds" has_starts "$name" $((starts_before[$id] + 1)); then
      fail "$what ($name)" "$(job_field "$id" JobState), $(job_field "$id" Reason), start $(job_field "$id" StartTime), priority $(job_field "$id" Priority); $(out_of "$name" | tail -n 8)"
      continue
    fi
    [[ $id != "$train" ]] || took "$what ($name)" "$began" "Slurm's share depends on what died"
    step=$(last_start "$name" step)
    if ! poll 40 commits_past "$id" "$step"; then
      fail "$what ($name)" "starts from $step but commits nothing; $(out_of "$name" | tail -n 8)"
    elif ((step < committed_before[$id])); then
      fail "$what ($name)" "goes back to $step, though ${committed_before[$id]} was committed"
    else
      is "$(job_field "$id" Restarts)" $((restarts_before[$id] + requeues)) \
        "$what ($name): on from step $step, $requeues requeues"
    fi
  done
}
both() { # COMM REGEX
  kill_one "$train" "$@" && kill_one "$save" "$@"
}

survive "kill -9 of a rank" 40 0 both counter .
survive "kill -9 of an agent" 40 0 both bellows 'bellows agent'
like "$(causes "$train")" 'the agent on n[1-3] was killed by signal 9 \(Killed\); back to step' \
  "the history names the agent"
survive "kill -9 of the launcher" 90 1 both bellows 'bellows run'
survive "kill -9 of the launcher of a requeued job" 90 1 both bellows 'bellows run'

# Slurm itself loses a job whose run is ended in its first two seconds by a slurmctld that remembers
# only the run before: slurmd takes that for a repeated request (slurm_cred_revoke: EEXIST) and keeps
# the run's entry, and with it refuses the next batch script.
runs_since() { # SECONDS
  local id start
  for id in "$train" "$save"; do
    start=$(date --date="$(job_field "$id" StartTime)" +%s) || return 1
    (($(date +%s) - start > $1)) || return 1
  done
}
restart_ctld() {
  poll 30 runs_since 2 || return 1
  mc stop-ctld --signal KILL
  kill_one "$train" counter .
  kill_one "$save" counter .
  mc start-ctld
}
survive "kill -9 of slurmctld, and of a rank meanwhile" 60 0 restart_ctld

# kill -9 of launcher and client between the requeue and the update. This is what a client does up to
# there, and then it is gone.
requeue_and_die() {
  local id
  for id in "$train" "$save"; do
    xc scontrol requeue "$id"
    kill_one "$id" bellows 'bellows run'
  done
  return 0
}
survive "kill -9 of launcher and client right after the requeue" 90 1 requeue_and_die

# The node with the batch script of one job and a part of the other: Slurm has to notice it itself.
batch_host() { xc --user root squeue --noheader --jobs="$1" --format=%B | tr -d n; }
if [[ -n ${BELLOWS_LONG:-} ]]; then repeats=3; else repeats=1; fi
for ((i = 0; i < repeats; i++)); do
  victim=$(batch_host "$save")
  survive "kill -9 of node n$victim" 120 1 mc kill-node "$victim"
  mc start-node "$victim"
  poll 60 node_is "$victim" 'idle|mixed|allocated'
done

like "$(events_of "$train")" '"event":"DEPLOYING","cause":"rank [0-9] on n[1-3] was killed by signal 9' \
  "the history names the causes"
is "$(grep -c 'Killing non-startable' "$CLUSTER/log/slurmctld.log")" 0 "no relaunch was lost"
xc scancel "$train" "$save"
poll 30 nodes_idle
is "$(pids_of "$train" bellows . | wc -l) $(pids_of "$save" counter . | wc -l)" "0 0" "nothing is left"
done_testing

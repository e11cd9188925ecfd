#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# kill -9 of everything there is, while training and while checkpointing: both jobs go on from the
# last committed checkpoint to their end, and nobody helps them.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=3 --gpus=4 --accounting
export TAP_LIMIT=120

# One job trains and now and then saves; the other does nothing but save.
train=$(submit_counter train --gpus=6 -- --steps 10000000 --sleep-us 5000 --save-every 100)
save=$(submit_counter save --gpus=2 -- --steps 10000000 --sleep-us 1000 --save-every 1 --rows 20000)
poll 40 commits_past "$train" 99 || bail "the training job does not commit"
poll 40 commits_past "$save" 20 || bail "the saving job does not commit"

# Does a fault to these jobs and watches them come back:
# survive WHAT REGEX-OF-CAUSE RESTARTS COMMAND...   (RESTARTS: requeues it may cost)
jobs=("$train" "$save")
survive() {
  local what=$1 cause=$2 requeues=$3 id name
  shift 3
  local -A restarts_before
  for id in "${jobs[@]}"; do restarts_before[$id]=$(job_field "$id" Restarts); done
  hurts "${jobs[@]}"
  "$@" || { fail "$what" "the fault could not be done"; return 0; }
  for id in "${jobs[@]}"; do
    name=$(job_field "$id" JobName)
    survives "$name" "$id" "$what ($name)" "$cause"
    poll 40 commits_past "$id" "$(last_start "$name" step)" || fail "$what ($name): it commits" "$(out_of "$name" | tail -n 8)"
    is "$(job_field "$id" Restarts)" $((restarts_before[$id] + requeues)) "$what ($name): $requeues requeues"
  done
}
both() { # COMM REGEX
  kill_one "$train" "$@" && kill_one "$save" "$@"
}
rank_killed='rank [0-9] on n[1-3] was killed by signal 9 \(Killed\); back to step'
launcher_killed='launcher .*did not say why: it was killed'

survive "kill -9 of a rank" "$rank_killed" 0 both counter .
survive "kill -9 of an agent" 'the agent on n[1-3] was killed by signal 9 \(Killed\); back to step' 0 \
  both bellows 'bellows agent'
survive "kill -9 of the launcher" "$launcher_killed" 1 both bellows 'bellows run'
survive "kill -9 of the launcher of a requeued job" "$launcher_killed" 1 both bellows 'bellows run'

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
# And one that has not saved yet that a run began, which it does every five seconds, takes the job for
# one that waits: that is 0043's.
saved_with() { grep -qaF "$1" "$CLUSTER/spool/ctld/job_state"; }
restart_ctld() {
  mc stop-ctld --signal KILL
  kill_one "$train" counter .
  kill_one "$save" counter .
  mc start-ctld
}
poll 30 runs_since 2
submit -- --hold --job-name=saved-by-now --wrap=true >/dev/null
poll 20 saved_with saved-by-now || bail "slurmctld does not save its state"
survive "kill -9 of slurmctld, and of a rank meanwhile" "$rank_killed" 0 restart_ctld

# kill -9 of launcher and client between the requeue and the update. This is what a client does up to
# there, and then it is gone. The launcher may just have told of the requeue.
requeue_and_die() {
  local id
  for id in "$train" "$save"; do
    xc scontrol requeue "$id"
    kill_one "$id" bellows 'bellows run'
  done
  return 0
}
survive "kill -9 of launcher and client right after the requeue" \
  "$launcher_killed|requeued by Slurm or an operator" 1 requeue_and_die

# The node with the batch script of one job and mostly a part of the other, unless Slurm had room for them
# apart: Slurm has to notice it itself.
run_of_train() { echo "$(job_field "$train" Restarts) requeues, $(starts train) starts"; }
batch_host() { xc --user root squeue --noheader --jobs="$1" --format=%B | tr -d n; }
if [[ -n ${BELLOWS_LONG:-} ]]; then repeats=3; else repeats=1; fi
for ((i = 0; i < repeats; i++)); do
  victim=$(batch_host "$save")
  jobs=("$save")
  away=""
  if nodes_of "$train" | grep -qx "n$victim"; then jobs+=("$train"); else away=$(run_of_train); fi
  survive "kill -9 of node n$victim" "a node failed|node n$victim was lost" 1 mc kill-node "$victim"
  [[ -z $away ]] || is "$(run_of_train)" "$away" "kill -9 of node n$victim: it leaves a job on other nodes alone"
  mc start-node "$victim"
  poll 60 node_is "$victim" 'idle|mixed|allocated'
done

let_end train "$train" 400
let_end save "$save" 100
ends_well train "$train" "all that to a job that trains"
ends_well save "$save" "all that to a job that saves"
is "$(grep -c 'Killing non-startable' "$CLUSTER/log/slurmctld.log")" 0 "no relaunch was lost"
poll 30 nodes_idle
is "$(pids_of "$train" bellows . | wc -l) $(pids_of "$save" counter . | wc -l)" "0 0" "nothing is left"
done_testing

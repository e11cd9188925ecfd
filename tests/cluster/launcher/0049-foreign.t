#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Programs that do not use libbellows and save on a signal, by a command, or not at all: resized up and
# down, and told apart from programs that have finished. BELLOWS_LONG=1: through the death of a node too.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice
program=$TAP_HOME/programs/own_saver.py

# submit_own NAME GPUS OPTIONS-OF-RUN -- STYLE STEPS [STATUS]
submit_own() {
  local name=$1 gpus=$2 options=()
  shift 2
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  printf '#!/bin/bash\nexec bellows run %s' "$run_kind" >"$home/$name.sh"
  printf ' %q' "${options[@]}" -- "$program" "$2" "$home/$name" "${@:3}" >>"$home/$name.sh"
  submit -- --framework=plain --gpus-range=1-8 --gpus="$gpus" --job-name="$name" \
    --output="$home/$name.out" "$name.sh"
}
stops_at() { log_of "$1" | sed -n "s/^$2 step=\([0-9]*\) .*/\1/p" | tail -n 1; }
resized() { # ID NAME GPUS STOP-WORD
  local before
  before=$(starts "$2")
  xc bellows resize --timeout 60 "$1" "$3" >"$home/progress" 2>&1 || { cat "$home/progress"; return 1; }
  poll 30 has_starts "$2" $((before + 1)) || return 1
  [[ $(last_start "$2" world) == "$3" && $(last_start "$2" step) == "$(stops_at "$2" "$4")" ]] ||
    { diag "$(log_of "$2" | tail -n 4)"; return 1; }
}

signal=$(submit_own signal 2 --checkpoint-signal=USR1 -- signal 100000)
# shellcheck disable=SC2016
asks='touch "$HOME/command.please"; while [ -e "$HOME/command.please" ]; do sleep 0.1; done'
command=$(submit_own command 2 --checkpoint-cmd="$asks" -- command 100000)
poll 40 has_starts signal 1
poll 40 has_starts command 1
ok "a program that saves on a signal moves to 4 GPUs" resized "$signal" signal 4 stop
ok "and to 1" resized "$signal" signal 1 stop
like "$(events_of "$signal")" '"event":"STORING","cause":"the program.s own checkpoint: resize' \
  "the history tells whose checkpoint it was"
ok "one that saves by a command moves to 4 GPUs" resized "$command" command 4 saved
ok "and to 1" resized "$command" command 1 saved
like "$(out_of signal)" 'stopping \(resize\): the ranks get SIGUSR1 and have 120 s' "what happens is said"

# With neither option the launcher says so at the start, and a resize must allow a start from scratch.
none=$(submit_own none 2 -- none 100000)
poll 40 has_starts none 1
out=$(xc bellows resize "$none" 4 2>&1)
is "$?" 3 "without a way to save, a resize is refused"
like "$out" 'work may be lost.*--checkpoint-signal or --checkpoint-cmd of bellows run.*--from-scratch' "and names all ways"
out=$(xc bellows resize --timeout 60 --from-scratch "$none" 3 2>&1)
is "$?" 0 "unless it may begin from scratch"
like "$out" 'whether the program had saved anything by itself is not known' "and claims nothing of its checkpoints"
poll 30 has_starts none 2
is "$(last_start none step) $(last_start none world)" "0 3" "which it does"
like "$(out_of none)" '3 ranks start from what the program may have saved by itself' "as far as it is known"

# A command that fails: the ranks go on, and so does the job.
failing=$(submit_own failing 1 --checkpoint-cmd='exit 3' -- command 100000)
poll 40 has_starts failing 1
exits "a resize whose command fails is refused" 3 xc bellows resize "$failing" 2
is "$(starts failing) $(job_field "$failing" JobState)" "1 RUNNING" "and nothing was stopped"
like "$(out_of failing)" 'the checkpoint command exited with status 3' "its failure is told"
xc scancel "$failing"

# Finished or stopped? With a status of its own for the one, 0 means the other.
mkdir -p "$home/f" && printf '#!/bin/bash\ntrap "exit 0" USR1\necho ready\nsleep 600 & wait\n' >"$home/f/zero.sh"
chmod -R a+rX "$home/f" && chmod a+x "$home/f/zero.sh"
printf '#!/bin/bash\nexec bellows run'"$run_kind"' --checkpoint-signal=USR1 --stopped-status=85 -- %s/f/zero.sh\n' \
  "$home" >"$home/zero.sh"
zero=$(submit -- --framework=plain --gpus-range=1-8 --gpus=1 --output="$home/zero.out" zero.sh)
status=$(submit_own status 1 --checkpoint-signal=USR1 --stopped-status=85 -- signal 100000 85)
# shellcheck disable=SC2016
printf '#!/bin/bash\nexec bellows run'"$run_kind"' --checkpoint-signal=12 -- sh -c %q\n' \
  'trap "touch $BELLOWS_FINISHED_FILE; exit 1" USR2; echo ready; while :; do sleep 0.1; done' >"$home/file.sh"
file=$(submit -- --framework=plain --gpus-range=1-8 --gpus=1 --output="$home/file.out" file.sh)
poll 40 has_starts status 1
poll 40 grep -q ready "$home/zero.out"
poll 40 grep -q ready "$home/file.out"
for id in "$zero" "$status" "$file"; do xc scancel --signal=USR1 --batch "$id"; done
poll 40 job_is "$zero" COMPLETED
is "$(job_field "$zero" JobState) $(job_field "$zero" Restarts)" "COMPLETED 0" \
  "with --stopped-status, ranks that end with 0 have finished"
poll 40 job_is "$file" COMPLETED
is "$(job_field "$file" JobState) $(job_field "$file" Restarts)" "COMPLETED 0" \
  "and so have those that made their file"
ok "ranks that end with the status continue" poll 40 has_starts status 2
is "$(last_start status step)" "$(stops_at status stop)" "from their checkpoint"
xc scancel "$status"

short=$(submit_own short 2 --checkpoint-signal=USR1 -- signal 100)
poll 40 has_starts short 1
xc scancel --signal=USR1 --batch "$short"
poll 60 job_is "$short" COMPLETED
is "$(job_field "$short" JobState) $(stops_at short finish) $(starts short)" "COMPLETED 100 2" \
  "a job that was stopped comes to its end"
said_early() { grep -q 'no rank has called bellows_init within 30 s: without libbellows each restart' "$home/none.out"; }
ok "that each restart is from scratch is said while it runs" poll 45 said_early
xc scancel "$command" "$none"
if [[ -z ${BELLOWS_LONG:-} ]]; then
  xc scancel "$signal"
  done_testing
  exit
fi

# A node dies: what was saved by itself is what the program goes on from.
xc bellows resize --timeout 60 "$signal" 6 >"$home/progress" 2>&1
before=$(starts signal)
kept=$(cat "$home/signal")
batch=$(xc --user root squeue --noheader --jobs="$signal" --format=%B)
mc kill-node $((3 - ${batch#n}))
poll 20 node_is $((3 - ${batch#n})) down
mc start-node $((3 - ${batch#n}))
ok "the death of a node restarts it" poll 90 has_starts signal $((before + 1))
is "$(last_start signal step)" "$kept" "from its newest checkpoint"
xc scancel "$signal"
poll 30 job_is "$signal" CANCELLED

done_testing

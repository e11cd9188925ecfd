# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# The main job of quickstart: a digits training that is resized twice and loses a rank and a node.
# The caller sets: top, build, cluster (the embedded cluster's directory), epochs.

started=0      # when the job was submitted, seconds since the epoch
marks=()       # gpu-timeline options: what we did, and when
shown=0        # lines of the event file that were shown

mc() {
  "$top/tests/cluster/minicluster" "$@"
}

as_user() {
  mc exec --dir "$cluster" -- "$@"
}

elapsed() {
  awk -v now="$EPOCHREALTIME" -v began="$started" 'BEGIN {printf "%6.1f s", now - began}'
}

# Newest committed step; 0 without one.
committed() {
  local newest
  newest=$(readlink "$checkpoints/latest" 2>/dev/null) || newest=
  newest=${newest##*step-}
  echo "$((10#${newest:-0}))"
}

# Steps of the whole training: the training part of the data has a fixed size, the batch is 64.
total_steps() {
  echo "$((epochs * steps_per_epoch))"
}

percent() {
  echo "$(($1 * 100 / $(total_steps)))"
}

# Prints the events that have come since the last call, but for the single checkpoints.
show_events() {
  local lines
  [ -r "$checkpoints/events.jsonl" ] || return 0
  lines=$(wc -l < "$checkpoints/events.jsonl")
  [ "$lines" -gt "$shown" ] || return 0
  tail -n "+$((shown + 1))" "$checkpoints/events.jsonl" | head -n "$((lines - shown))" |
    jq -rR --argjson began "$started" 'fromjson? |
      select(.event != "CHECKPOINTING" and (.cause | startswith("committed step") | not)) |
      "\(([.time - $began, 0] | max * 10 | round) / 10 | tostring | (" " * (6 - length)) + .) s  \(.event)" +
      "  \(.gpus) GPUs on \(.nodes | join(","))" + (if .step then "  step \(.step)" else "" end) +
      (if .cause != "" then "  (\(.cause))" else "" end)'
  shown=$lines
}

job_state() {
  as_user squeue --noheader --states=all --jobs="$job" --format=%T 2>/dev/null
}

job_ended() {
  case $(job_state) in
    COMPLETED | FAILED | CANCELLED | TIMEOUT | OUT_OF_MEMORY | DEADLINE) return 0 ;;
  esac
  return 1
}

# Waits for a condition while showing what happens: watch_until SECONDS WHAT CMD...
watch_until() {
  local limit=$((SECONDS + $1 * ${BELLOWS_PATIENCE:-1})) what=$2 next=$((SECONDS + 5))
  shift 2
  until "$@"; do
    show_events
    if job_ended && ! "$@"; then
      show_events
      tail -n 20 "$output" 2>/dev/null | sed 's/^/    | /'
      fail "the job ended as $(job_state) while waiting for $what; its output is $output"
    fi
    [ "$SECONDS" -lt "$limit" ] || fail "gave up waiting for $what; the job is $(job_state), its output is $output"
    if [ "$SECONDS" -ge "$next" ]; then
      printf '%s  step %d of %d (%d %%)\n' "$(elapsed)" "$(committed)" "$(total_steps)" "$(percent "$(committed)")"
      next=$((SECONDS + 5))
    fi
    nap 0.5
  done
  show_events
}

step_reached() {
  [ "$(committed)" -ge "$1" ]
}

# The newest event says that N GPUs compute: processing N [STEP-AT-LEAST]
processing() {
  tail -n 1 "$checkpoints/events.jsonl" 2>/dev/null |
    jq -e --argjson n "$1" '(.event == "PROCESSING" or .event == "CHECKPOINTING") and .gpus == $n' > /dev/null 2>&1
}

# Says what is done now, and remembers it for the picture: act TEXT
act() {
  printf '%s  ** %s at step %d (%d %%)\n' "$(elapsed)" "$1" "$(committed)" "$(percent "$(committed)")"
  marks+=(--mark "$EPOCHREALTIME=$1, step $(committed)")
}

submit_job() {
  local shared=$cluster/shared/quickstart
  install -d -m 1777 "$shared"  # the job's user writes its output and ledger here
  install -m 644 "$build/data/digits.csv.gz" "$shared/digits.csv.gz"
  install -m 755 "$top/examples/digits/digits.sbatch" "$shared/digits.sbatch"
  started=$EPOCHREALTIME
  ledger=$shared/ledger-${started%.*}
  job=$(as_user env BELLOWS_DIGITS="$shared/digits.csv.gz" DIGITS="$build/examples/digits/digits" \
    sbatch --parsable --framework=digits --gpus-range=1-8 --gpus=2 --output="$shared/job-%j.out" \
    "$shared/digits.sbatch" --epochs "$epochs" --ledger "$ledger") ||
    fail "sbatch refused the job"
  output=$shared/job-$job.out
  checkpoints=$cluster/shared/checkpoints/alice/$job
  echo "    job $job: sbatch --framework=digits --gpus-range=1-8 --gpus=2 digits.sbatch --epochs $epochs"
}

resize_job() {
  act "bellows resize $job $1"
  as_user bellows resize "$job" "$1" 2>&1 | sed 's/^/           | /'
  [ "${PIPESTATUS[0]}" -eq 0 ] || fail "bellows resize failed"
}

# A fault must land between 20 and 80 % of the steps to prove anything.
check_fault_step() {
  local at
  at=$(percent "$(committed)")
  if [ "$at" -lt 20 ] || [ "$at" -gt 80 ]; then
    fail "this fault would land at $at % of the steps, outside 20 to 80 %: the machine is too fast or too slow; try --epochs"
  fi
}

kill_rank() {
  local node
  node=$(tail -n 1 "$checkpoints/events.jsonl" | jq -r '.nodes[-1]')
  check_fault_step
  act "kill -9 of one rank on $node"
  mc exec --dir "$cluster" --user root --node "${node#n}" -- pkill -KILL -n -x '(lt-)?digits' ||
    fail "no rank was found on $node"
}

kill_node() {
  lost=$(tail -n 1 "$checkpoints/events.jsonl" | jq -r '.nodes[-1]')
  check_fault_step
  act "kill -9 of the whole node $lost"
  mc kill-node "${lost#n}" --dir "$cluster" || fail "$lost could not be killed"
}

# How often the ranks were started.
attempts() {
  grep -c '"event":"DEPLOYING"' "$checkpoints/events.jsonl" 2>/dev/null
}

# After a fault: computing again, in a later attempt than the one before it.
computing_again() {
  [ "$(attempts)" -gt "$1" ] && tail -n 1 "$checkpoints/events.jsonl" | grep -qE '"event":"(PROCESSING|CHECKPOINTING)"'
}

run_main_job() {
  local total before
  total=$(total_steps)
  submit_job
  watch_until 60 "2 GPUs to compute" processing 2
  watch_until 300 "10 % of the steps" step_reached "$((total * 10 / 100))"
  resize_job 8
  watch_until 90 "8 GPUs to compute" processing 8
  watch_until 300 "25 % of the steps" step_reached "$((total * 25 / 100))"
  before=$(attempts)
  kill_rank
  watch_until 90 "the job to compute again" computing_again "$before"
  watch_until 300 "40 % of the steps" step_reached "$((total * 40 / 100))"
  resize_job 4
  watch_until 90 "4 GPUs to compute" processing 4
  watch_until 300 "55 % of the steps" step_reached "$((total * 55 / 100))"
  before=$(attempts)
  kill_node
  watch_until 150 "the job to compute again" computing_again "$before"
  act "$lost is started again"
  mc start-node "${lost#n}" --dir "$cluster" || fail "$lost did not start again"
  watch_until 600 "the end of the job" job_ended
  show_events
}

# The picture, what was asked for against what happened, and the accuracy.
summarize() {
  local accuracy verdict=0
  echo
  "$top/tests/lib/gpu-timeline" "${marks[@]}" "$checkpoints/events.jsonl"
  echo
  echo "job $job: $(job_state); sizes: $(jq -rR 'fromjson? | select(.event == "PROCESSING") | .gpus' \
    "$checkpoints/events.jsonl" | uniq | paste -sd ' ' | sed 's/ / → /g') GPUs; $(total_steps) steps in $epochs epochs"
  [ "$(job_state)" = COMPLETED ] || verdict=1
  if "$top/tests/lib/check-ledger" "$ledger"; then :; else
    echo "the ledger does not show every sample of every epoch exactly once"
    verdict=1
  fi
  accuracy=$(sed -n 's/^accuracy: \([0-9.]*\) %$/\1/p' "$output" | tail -n 1)
  [ -n "$accuracy" ] || fail "the job printed no accuracy; its output is $output"
  awk "BEGIN {exit !($accuracy >= 95)}" || {
    echo "the accuracy is below 95 %"
    verdict=1
  }
  echo "accuracy: $accuracy %"
  return "$verdict"
}

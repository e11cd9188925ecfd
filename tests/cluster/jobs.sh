# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of the launcher: elastic jobs that count, and the faults done to them. After tap.sh.

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
counter=$build/tests/cluster/programs/counter
[[ -x $counter ]] || skip_all "$counter is not built"

# cluster_up for tests in which nodes die: Slurm notices that twice MessageTimeout late, and makes the
# job wait for the lifetime of a credential, as with a requeue. SLURM_LINES are more lines of slurm.conf.
impatient_cluster_up() { # OPTION-OF-UP...
  local conf
  conf=$(mktemp)
  printf 'AuthInfo=cred_expire=10\nMessageTimeout=5\n%s\n' "${SLURM_LINES:-}" >"$conf"
  cluster_up "$@" --slurm-conf "$conf"
  rm -f "$conf"
}

# Submits a counting job and prints its id: submit_counter NAME OPTION-OF-SBATCH... -- OPTION-OF-COUNTER...
# It ends after its --steps, or when let_end says so.
submit_counter() {
  local name=$1 home=$CLUSTER/shared/home/alice options=()
  shift
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  # shellcheck disable=SC2016,SC2154
  printf '#!/bin/bash\nexec bellows run'"$run_kind"' ${RUN_OPTIONS:-} -- %s --log %s %s\n' \
    "$counter" "$home/$name.log --until $home/$name.last" "$*" >"$home/$name.sh"
  submit -- --framework=digits --gpus-range=1-8 "${options[@]}" --job-name="$name" \
    --output="$home/$name.out" "$name.sh"
}

log_of() { cat "$CLUSTER/shared/home/alice/$1.log" 2>/dev/null; }
out_of() { cat "$CLUSTER/shared/home/alice/$1.out" 2>/dev/null; }
starts() { log_of "$1" | grep -c '^start '; }
has_starts() { (($(starts "$1") >= $2)); }
# The step and the number of ranks of the newest start: last_start NAME FIELD
last_start() { log_of "$1" | sed -n "s/^start .*\<$2=\([^ ]*\).*/\1/p" | tail -n 1; }

# Job -> its checkpoints, where they are not in their usual place.
declare -A kept_in=()
checkpoints() { echo "${kept_in[$1]:-$CLUSTER/shared/checkpoints/alice/$1}"; } # JOB
# The newest committed step of a job, 0 without one.
committed() {
  local newest
  newest=$(readlink "$(checkpoints "$1")/latest") || { echo 0; return; }
  echo $((10#${newest##*step-}))
}
commits_past() { (($(committed "$1") > $2)); } # JOB STEP
events_of() { cat "$(checkpoints "$1")/events.jsonl" 2>/dev/null; }

# The processes of this cluster's jobs whose name and arguments match: pids_of JOB COMM REGEX
# Without a fork for each of them: what is to be killed may be about to end.
pids_of() {
  local pid text words
  for pid in $(pgrep -x "$2"); do
    mapfile -d '' -t words <"/proc/$pid/environ" || continue
    printf -v text '\n%s\n' "${words[@]}"
    [[ $text == *$'\n'"SLURM_CONF=$CLUSTER/etc/slurm.conf"$'\n'* && $text == *$'\n'"SLURM_JOB_ID=$1"$'\n'* ]] || continue
    mapfile -d '' -t words <"/proc/$pid/cmdline" || continue
    [[ "${words[*]} " =~ $3 ]] && echo "$pid"
  done 2>/dev/null
  return 0
}
# Not a fork of the launcher, which lives for a question to slurmctld.
kill_one() { # JOB COMM REGEX
  local pid pids stat victim=""
  pids=" $(pids_of "$@" | xargs) "
  for pid in $pids; do
    read -r stat 2>/dev/null <"/proc/$pid/stat" || continue
    # PID (NAME) STATE PARENT ...
    stat=${stat##*) ? }
    [[ $pids == *" ${stat%% *} "* ]] || victim=$pid
  done
  [[ -n $victim ]] && kill -KILL "$victim"
}

# What a job really holds: gpus_held JOB prints "GPUS NODES"
gpus_held() {
  xc --user root scontrol --details show job "$1" |
    sed -n 's/^ *Nodes=\([^ ]*\) .*GRES=gpu:\([0-9]*\).*/\1 \2/p' |
    while read -r nodes gpus; do
      echo "$(xc --user root scontrol show hostnames "$nodes" | wc -l) $gpus"
    done | awk '{ nodes += $1; gpus += $1 * $2 } END { print gpus + 0, nodes + 0 }'
}

nodes_of() { xc --user root scontrol show hostnames "$(job_field "$1" NodeList)"; } # JOB

now_us() { echo "${EPOCHREALTIME/[.,]/}"; }
since() { (($(now_us) - $1 > $2 * 1000000)); } # MICROSECONDS SECONDS
causes() { events_of "$1" | sed 's/.*"cause":"\([^"]*\)".*/\1/'; } # JOB

# Lets a job that counts and saves come to its end STEPS after its newest commit: all its ranks must see
# it before they are there.
let_end() { # NAME JOB STEPS
  local last=$CLUSTER/shared/home/alice/$1.last
  echo $(($(committed "$2") + $3)) >"$last.new" && mv "$last.new" "$last"
}
ends_well() { # NAME JOB WHAT
  local home=$CLUSTER/shared/home/alice last
  last=$(cat "$home/$1.last" 2>/dev/null || sed -n 's/.* --steps \([0-9]*\).*/\1/p' "$home/$1.sh")
  poll 90 job_is "$2" COMPLETED
  is "$(job_field "$2" JobState) $(log_of "$1" | grep -o '^finish step=[0-9]* ')" "COMPLETED finish step=$last " \
    "$3: the job ends COMPLETED, with the right result" || diag "$(out_of "$1" | tail -n 8)"
}

# Right before a fault to jobs: what is committed by then must not be lost, and the time runs.
declare -A hurt_at=() hurt_step=()
hurts() { # JOB...
  local id
  for id; do
    hurt_step[$id]=$(committed "$id")
    hurt_at[$id]=$(now_us)
  done
}
# A job's first start since its fault, as "STEP MICROSECONDS": start_since NAME JOB
start_since() {
  log_of "$1" | sed -n 's/^start step=\([0-9]*\) .* time=\([0-9]*\)\.\([0-9]*\)$/\1 \2\3/p' |
    awk -v fault="${hurt_at[$2]}" '$2 > fault { print; found = 1; exit } END { exit !found }'
}
# recovery.py of a job's last fault: told_since JOB MICROSECONDS-AT-THE-NEW-START
told_since() {
  xc bellows history --json ${kept_in[$1]:+--checkpoint-dir "${kept_in[$1]}"} "$1" 2>/dev/null |
    "$TAP_HOME/recovery.py" "$CLUSTER/log" "$1" "${hurt_at[$1]}" "$2"
}
# Leaves what it was told in $told.
tells() { # JOB MICROSECONDS REGEX
  told=$(told_since "$1" "$2")
  sed 1d <<<"$told" | grep -qE -- "$3"
}
# What must hold when a job has come back from a fault; says how long that took and what of it is Slurm's.
survives() { # NAME JOB WHAT REGEX-OF-CAUSE
  local step back
  if ! poll 120 start_since "$1" "$2"; then
    fail "$3: its ranks are started again" "$(job_field "$2" JobState), $(job_field "$2" Reason), start $(job_field "$2" StartTime); $(out_of "$1" | tail -n 8)"
    return 0
  fi
  read -r step back < <(start_since "$1" "$2")
  ok "$3: it continues from step $step; nothing that was committed is lost" test "$step" -ge "${hurt_step[$2]}"
  # Slurm's accounting may be some seconds behind.
  poll 20 tells "$2" "$back" "$4"
  like "$(sed 1d <<<"$told" | grep -vE '^(committed )?step [0-9]+$')" "$4" "$3: the history gives the cause"
  diag "$3: from the fault to training again: ${told%%$'\n'*}"
}
recovers() { # NAME JOB WHAT REGEX-OF-CAUSE
  survives "$@"
  ends_well "$1" "$2" "$3"
}
# The same for a fault in which nothing is started again.
took() { # WHAT JOB MICROSECONDS-WHEN-ALL-WAS-WELL-AGAIN
  local us=$(($3 - hurt_at[$2]))
  diag "$1: from the fault to training again: $((us / 1000000)).$(printf %02d $((us / 10000 % 100))) s, of which Slurm 0 s (it has no part in it)"
}

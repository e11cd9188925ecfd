# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of the launcher: elastic jobs that count, and the faults done to them. After tap.sh.

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
counter=$build/tests/cluster/programs/counter
[[ -x $counter ]] || skip_all "$counter is not built"

# cluster_up for tests in which nodes die: Slurm notices that twice MessageTimeout late, and makes the
# job wait for the life of a credential, as with a requeue. SLURM_LINES are more lines of slurm.conf.
impatient_cluster_up() { # OPTION-OF-UP...
  local conf
  conf=$(mktemp)
  printf 'AuthInfo=cred_expire=10\nMessageTimeout=5\n%s\n' "${SLURM_LINES:-}" >"$conf"
  cluster_up "$@" --slurm-conf "$conf"
  rm -f "$conf"
}

# Submits a counting job and prints its id: submit_counter NAME OPTION-OF-SBATCH... -- OPTION-OF-COUNTER...
submit_counter() {
  local name=$1 home=$CLUSTER/shared/home/alice options=()
  shift
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  # shellcheck disable=SC2016
  printf '#!/bin/bash\nexec bellows run ${RUN_OPTIONS:-} -- %s --log %s %s\n' \
    "$counter" "$home/$name.log" "$*" >"$home/$name.sh"
  submit -- --framework=digits --gpus-range=1-8 "${options[@]}" --job-name="$name" \
    --output="$home/$name.out" "$name.sh"
}

log_of() { cat "$CLUSTER/shared/home/alice/$1.log" 2>/dev/null; }
out_of() { cat "$CLUSTER/shared/home/alice/$1.out" 2>/dev/null; }
starts() { log_of "$1" | grep -c '^start '; }
has_starts() { (($(starts "$1") >= $2)); }
# The step and the number of ranks of the newest start: last_start NAME FIELD
last_start() { log_of "$1" | sed -n "s/^start .*\<$2=\([^ ]*\).*/\1/p" | tail -n 1; }

checkpoints() { echo "$CLUSTER/shared/checkpoints/alice/$1"; } # JOB
# The newest committed step of a job, 0 without one.
committed() {
  local newest
  newest=$(readlink "$(checkpoints "$1")/latest") || { echo 0; return; }
  echo $((10#${newest##*step-}))
}
commits_past() { (($(committed "$1") > $2)); } # JOB STEP
events_of() { cat "$(checkpoints "$1")/events.jsonl" 2>/dev/null; }

# The processes of this cluster's jobs whose name and arguments match: pids_of JOB COMM REGEX
pids_of() {
  local pid
  for pid in $(pgrep -x "$2"); do
    grep -qzxF "SLURM_CONF=$CLUSTER/etc/slurm.conf" "/proc/$pid/environ" || continue
    grep -qzxF "SLURM_JOB_ID=$1" "/proc/$pid/environ" || continue
    tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qE -- "$3" && echo "$pid"
  done 2>/dev/null
  return 0
}
kill_one() { # JOB COMM REGEX
  local pid
  pid=$(pids_of "$@" | tail -n 1)
  [[ -n $pid ]] && kill -KILL "$pid"
}

# What a job really holds: gpus_held JOB prints "GPUS NODES"
gpus_held() {
  xc --user root scontrol --details show job "$1" |
    sed -n 's/^ *Nodes=\([^ ]*\) .*GRES=gpu:\([0-9]*\).*/\1 \2/p' |
    while read -r nodes gpus; do
      echo "$(xc --user root scontrol show hostnames "$nodes" | wc -l) $gpus"
    done | awk '{ nodes += $1; gpus += $1 * $2 } END { print gpus + 0, nodes + 0 }'
}

now_us() { echo "${EPOCHREALTIME/[.,]/}"; }
# Says how long it took from a fault to the ranks' new start, and what of that is Slurm's.
took() { # WHAT MICROSECONDS-AT-THE-FAULT SLURMS-SHARE
  local ms=$((($(now_us) - $2) / 1000))
  diag "$1: $((ms / 1000)).$(printf %03d $((ms % 1000))) s from the fault to training again; $3"
}
causes() { events_of "$1" | sed 's/.*"cause":"\([^"]*\)".*/\1/'; } # JOB

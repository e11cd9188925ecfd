# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests on an embedded cluster: TAP points, limits on waiting, and clusters that always go.
#
# A test sources this file first. It may say "# deadline: SECONDS" in its first twelve lines
# (default 180): tap.sh starts it again under timeout(1), and brings its clusters down whatever
# happens. BELLOWS_KEEP=1 keeps the directories of the clusters, for their logs.

TAP_HOME=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MINICLUSTER=$TAP_HOME/minicluster

if [[ -z ${TAP_UNDER_TIMEOUT:-} ]]; then
  tap_limit=$(sed -n '1,12s/^# deadline: *\([0-9]*\).*/\1/p' "$0" | head -n 1)
  [[ -z ${BELLOWS_LONG:-} ]] || tap_limit=7200
  TAP_UNDER_TIMEOUT=1 exec timeout --kill-after=60 "$((${tap_limit:-180} * ${BELLOWS_PATIENCE:-1}))" "$0" "$@"
fi
unset TAP_UNDER_TIMEOUT

tap_points=0
tap_failed=0
tap_plan=""
tap_clusters=()
CLUSTER=""

diag() { printf '%s\n' "$*" | sed 's/^/# /'; }

plan() { # N
  tap_plan=$1
  echo "1..$1"
}

# For tests that count their points only while they run.
done_testing() {
  tap_plan=$tap_points
  echo "1..$tap_points"
}

# Also what is left of a test that has begun.
skip_all() { # REASON
  if ((tap_points > 0)); then
    skip "the rest" "$1"
    done_testing
    exit
  fi
  tap_plan=0
  echo "1..0 # SKIP $1"
  exit 0
}

bail() { # REASON
  echo "Bail out! $1"
  tap_failed=$((tap_failed + 1))
  exit 1
}

pass() { # NAME
  tap_points=$((tap_points + 1))
  echo "ok $tap_points - $1"
}

fail() { # NAME [EXPLANATION]
  tap_points=$((tap_points + 1))
  tap_failed=$((tap_failed + 1))
  echo "not ok $tap_points - $1"
  [[ -z ${2:-} ]] || diag "$2"
  return 1
}

skip() { # NAME REASON
  tap_points=$((tap_points + 1))
  echo "ok $tap_points - $1 # SKIP $2"
}

# Passes when the command succeeds; shows its output when it fails.
ok() { # NAME COMMAND...
  local name=$1 output status=0
  shift
  output=$("$@" 2>&1) || status=$?
  if ((status == 0)); then
    pass "$name"
  else
    fail "$name" "status $status of: $*"$'\n'"$output"
  fi
}

# Passes when the command ends with this exit status.
exits() { # NAME STATUS COMMAND...
  local name=$1 wanted=$2 output status=0
  shift 2
  output=$("$@" 2>&1) || status=$?
  if ((status == wanted)); then
    pass "$name"
  else
    fail "$name" "status $status instead of $wanted of: $*"$'\n'"$output"
  fi
}

is() { # GOT WANTED NAME
  if [[ $1 == "$2" ]]; then pass "$3"; else fail "$3" "got:    $1"$'\n'"wanted: $2"; fi
}

isnt() { # GOT UNWANTED NAME
  if [[ $1 != "$2" ]]; then pass "$3"; else fail "$3" "got what must not be: $1"; fi
}

like() { # GOT EXTENDED-REGEX NAME
  if [[ $1 =~ $2 ]]; then pass "$3"; else fail "$3" "got: $1"$'\n'"not like: $2"; fi
}

unlike() { # GOT EXTENDED-REGEX NAME
  if [[ ! $1 =~ $2 ]]; then pass "$3"; else fail "$3" "got: $1"$'\n'"like: $2"; fi
}

# Prints a number of seconds for this machine: N times BELLOWS_PATIENCE.
seconds() { echo "$(($1 * ${BELLOWS_PATIENCE:-1}))"; } # N

# Runs the command again and again until it succeeds, for at most SECONDS (times BELLOWS_PATIENCE).
# To ask takes the processor from what is waited for: a question that takes long comes after a longer pause.
poll() { # SECONDS COMMAND...
  local begin now=${EPOCHREALTIME/[.,]/} end pause
  end=$((now + $(seconds "$1") * 1000000))
  shift
  while begin=${EPOCHREALTIME/[.,]/}; ! "$@" >/dev/null 2>&1; do
    now=${EPOCHREALTIME/[.,]/}
    ((now < end)) || return 1
    pause=$((6 * (now - begin)))
    ((pause > 100000)) || pause=100000
    ((pause < 500000)) || pause=500000
    printf -v pause '0.%06d' "$pause"
    sleep "$pause"
  done
}

# Starts a cluster in a fresh directory, which becomes $CLUSTER. The test ends if it can't.
cluster_up() { # OPTION-OF-UP...
  # Not below /tmp: a job with a contract has a /tmp of its own.
  CLUSTER=$(mktemp -d "${BELLOWS_TESTDIR:-/srv}/bellows-test-XXXXXX")
  tap_clusters+=("$CLUSTER")
  # Not in a command substitution: the trap must see the cluster.
  if ! timeout --foreground 600 "$MINICLUSTER" up --dir "$CLUSTER" "$@" >"$CLUSTER.up" 2>&1; then
    diag "$(<"$CLUSTER.up")"
    rm -f -- "$CLUSTER.up"
    # slurmdbd of Debian 13 and later with their MariaDB 11.8.9.
    if slurm_is_from 24.11 && grep -qs 'fatal: _check_mysql_concat_is_sane: null result' "$CLUSTER/log/slurmdbd.log"; then
      skip_all "this slurmdbd can't use this MariaDB"
    fi
    bail "the cluster did not start"
  fi
  diag "$(tail -n 1 "$CLUSTER.up")"
  rm -f -- "$CLUSTER.up"
}

# A command of minicluster on the current cluster: mc kill-node 2
mc() { # COMMAND ARGUMENT...
  local command=$1
  shift
  timeout --foreground "$(seconds "${TAP_LIMIT:-60}")" "$MINICLUSTER" "$command" --dir "$CLUSTER" "$@"
}

# Runs a command on the current cluster as its user: xc [--user U] [--node I] COMMAND...
xc() { mc exec "$@"; }

# Prints the id of a new batch job: submit [--user U] -- OPTION-OF-SBATCH...
submit() {
  local options=()
  while [[ $1 != -- ]]; do
    options+=("$1")
    shift
  done
  shift
  xc "${options[@]}" sbatch --parsable "$@"
}

slurm_version=$(slurmctld -V | grep -o '[0-9.]*$')
# Whether this Slurm is a release, such as 23.11, or a later one.
slurm_is_from() { printf '%s\n' "$1" "$slurm_version" | sort -CV; } # VERSION
# Whether this kernel is a release, such as 6.2, or a later one.
linux_is_from() { printf '%s\n' "$1" "$(uname -r)" | sort -CV; } # VERSION
# How it spells a GRES in TresPerJob and the like.
# shellcheck disable=SC2034  # for the tests
if slurm_is_from 23.11; then gres=gres/; else gres=gres:; fi
# Debian builds 26.05 without mpi/pmix, which kind mpi needs: programs that do without MPI can be run
# as kind plain there.
has_pmix=$(compgen -G '/usr/lib/*/slurm*/mpi_pmix.so')
run_kind=''
if [[ -z $has_pmix ]]; then
  slurm_is_from 26.05 || bail "this Slurm has no mpi/pmix"
  # shellcheck disable=SC2034
  run_kind=' --kind=plain'
fi

# A command of Slurm's as root, from this machine: entering the cluster costs more than the command.
# A cluster with the Slurm of another suite does not understand this machine's.
ask_slurm() { # COMMAND...
  if [[ -e $CLUSTER/.suite ]]; then
    xc --user root "$@"
    return
  fi
  SLURM_CONF=$CLUSTER/etc/slurm.conf timeout --foreground "$(seconds "${TAP_LIMIT:-60}")" "$@"
}

# One field of a job as scontrol shows it: job_field ID JobState
job_field() {
  ask_slurm scontrol --oneliner show job "$1" 2>/dev/null |
    awk -v RS='[ \n]' -v field="$2=" 'index($0, field) == 1 { print substr($0, length(field) + 1); exit }'
}

job_is() { # ID STATE-REGEX
  [[ $(job_field "$1" JobState) =~ ^($2)$ ]]
}

node_is() { # I STATE-REGEX
  [[ $(ask_slurm sinfo --noheader --nodes="n$1" --format=%T) =~ ^($2)$ ]]
}

nodes_idle() {
  [[ $(ask_slurm sinfo --noheader --format=%T | sort -u) == idle ]]
}

cluster_id() { cat "$1/state/id"; } # DIR

# Whether the cluster's number is another's by now: up takes one only when neither a bridge nor a
# cgroup of it is there.
number_is_anothers() { # ID DIR
  local label=/sys/class/net/bmc$1/ifalias
  [[ -e $label ]] && poll 2 grep -q . "$label" && ! grep -qxF "minicluster:$2" "$label"
}

# What a cluster has on the machine, beside its directory: processes, mounts, links, cgroups.
traces() { # ID DIR
  local named
  named=$(
    find /sys/class/net/ -maxdepth 1 \( -name "bmc$1" -o -name "bmc$1-*" \)
    find /sys/fs/cgroup/ -name "bellows-mc$1"
  )
  grep -lsaf <(echo "$2") /proc/[0-9]*/cmdline
  grep -hs -- "$2" /proc/self/mountinfo
  [[ -z $named ]] || number_is_anothers "$1" "$2" || echo "$named"
}

left_nothing() { # ID DIR
  is "$(traces "$1" "$2")" "" "and leaves nothing"
}

tap_show_logs() { # CLUSTER
  local log
  for log in "$1"/log/*; do
    [[ -s $log && $log != */munged.log ]] || continue
    echo "--- the end of $log"
    tail -n 30 -- "$log"
  done >&2
}

tap_end() {
  local status=$? cluster
  trap - EXIT
  trap '' INT TERM HUP
  if [[ -z $tap_plan ]] || ((tap_plan != tap_points && tap_plan != 0)); then
    ((tap_failed)) || diag "planned ${tap_plan:-nothing}, ran $tap_points points"
    tap_failed=$((tap_failed + 1))
  fi
  for cluster in "${tap_clusters[@]}"; do
    ((tap_failed == 0 && status == 0)) || tap_show_logs "$cluster"
    rm -f -- "$cluster.up"
    if [[ -d $cluster/state ]] && ! timeout "$(seconds 60)" "$MINICLUSTER" down --dir "$cluster"; then
      tap_failed=1
      echo "the cluster in $cluster did not go; try minicluster down again" >&2
    elif [[ -z ${BELLOWS_KEEP:-} ]]; then
      rm -rf -- "$cluster"
    fi
  done
  ((status != 0 || tap_failed == 0)) || status=1
  exit "$status"
}
trap tap_end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

((EUID == 0)) || skip_all "an embedded cluster needs root"

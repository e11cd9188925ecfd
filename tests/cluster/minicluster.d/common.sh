# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Messages, the recorded state of a cluster, and processes told apart by their start time.

say() { printf 'minicluster: %s\n' "$*"; }
warn() { printf 'minicluster: %s\n' "$*" >&2; }
die() {
  warn "$*"
  exit 1
}
usage_error() {
  warn "$*; see 'minicluster --help'"
  exit 2
}

# DIR/state/vars holds what all later commands need; it is written once, by up.
save_state() {
  local name
  for name in id dir nodes gpus accounting elastic modelstore plugins builddir cgroup_version controllers; do
    printf 'MC_%s=%q\n' "$name" "${!name}"
  done >"$dir/state/vars.new"
  printf 'MC_daemon_environment=(%s)\n' "${environment[*]@Q}" >>"$dir/state/vars.new"
  mv -- "$dir/state/vars.new" "$dir/state/vars"
}

load_state() {
  local given=$dir
  dir=$(realpath -e -- "$dir" 2>/dev/null) || die "there is no cluster in '$given'"
  [[ -d $dir/state ]] || die "no cluster runs in '$given'"
  [[ -r $dir/state/vars ]] ||
    die "the cluster in $dir was never started completely; remove it with 'minicluster down'"
  # shellcheck source=/dev/null
  . "$dir/state/vars"
  id=$MC_id nodes=$MC_nodes gpus=$MC_gpus accounting=$MC_accounting elastic=$MC_elastic modelstore=$MC_modelstore
  plugins=$MC_plugins
  builddir=$MC_builddir cgroup_version=$MC_cgroup_version controllers=$MC_controllers
  daemon_environment=("${MC_daemon_environment[@]}")
}

check_node_number() {
  ((node <= nodes)) || die "there is no node $node: the cluster has $nodes"
}

# Field 22 of /proc/PID/stat; the command's name may hold spaces and parentheses.
start_time() { # PID
  local line
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  # shellcheck disable=SC2086
  set -- ${line##*) }
  [[ $1 != [ZX] ]] || return 1
  printf '%s\n' "${20}"
}

# Prints the pid of a member's init as the machine sees it, if it is alive.
member_pid() { # MEMBER
  local pid started
  { read -r pid started <"$dir/state/pid.$1"; } 2>/dev/null || return 1
  [[ $(start_time "$pid" || true) == "$started" ]] || return 1
  printf '%s\n' "$pid"
}

# Runs a command again and again until it succeeds; fails after SECONDS (times BELLOWS_PATIENCE).
poll_for() { # SECONDS COMMAND...
  local deadline=$((${EPOCHREALTIME/[.,]/} + $1 * ${BELLOWS_PATIENCE:-1} * 1000000)) pause=20
  shift
  until "$@"; do
    ((${EPOCHREALTIME/[.,]/} < deadline)) || return 1
    sleep "0.$(printf %03d "$pause")"
    ((pause >= 200)) || pause=$((pause * 5 / 4))
  done
}

members() {
  local i
  echo ctl
  for ((i = 1; i <= nodes; i++)); do echo "n$i"; done
}

show_log_tail() { # FILE
  [[ -s $1 ]] || return 0
  warn "the last lines of $1:"
  tail -n 15 -- "$1" >&2
}

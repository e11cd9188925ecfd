# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# A cluster with the Slurm of another Debian suite: each command runs once more inside that suite's
# root directory. From "up" on DIR/.suite names the suite, and where its root directory lies if not
# in the usual place.

# Becomes the same command inside the root directory, if the cluster is to have one.
enter_suite() {
  local newer=$MC_SOURCE/tests/newer seen suites
  [[ -z ${MC_INSIDE_SUITE:-} ]] || return 0
  if [[ $command == up ]]; then
    [[ -n $suite ]] || return 0
    [[ -x $newer ]] || die "--slurm needs a checkout of Bellows, and this minicluster is installed"
    [[ -z $builddir || $builddir == "${BELLOWS_BUILDDIR:-}" ]] || usage_error "--builddir and --slurm exclude each other"
    mkdir -p -- "$dir" || die "cannot make the directory $dir"
    "$newer" "$suite" --build
  else
    { { read -r suite && read -r suites; } <"$dir/.suite"; } 2>/dev/null || return 0
    [[ -z $suites ]] || export BELLOWS_NEWER_DIR=$suites
  fi
  [[ $command != env ]] ||
    die "this cluster's programs are in the root directory of $suite; use 'minicluster exec --user root'"
  dir=$(realpath -- "$dir")
  seen=("$dir")
  repeat_command
  [[ -z $slurm_conf ]] || seen+=("$slurm_conf")
  [[ -z $bellows_conf ]] || seen+=("$bellows_conf")
  exec "$newer" "$suite" --enter "${seen[@]}" -- env MC_INSIDE_SUITE=1 BELLOWS_PATIENCE="${BELLOWS_PATIENCE:-1}" \
    MC_SUITES="${BELLOWS_NEWER_DIR:+$(realpath -- "$BELLOWS_NEWER_DIR")}" TERM="${TERM:-dumb}" \
    tests/cluster/minicluster "${repeated[@]}"
}

# The command line again, with absolute paths: sets `repeated`.
repeat_command() {
  local pair
  repeated=("$command" --dir "$dir")
  if [[ $command == up ]]; then
    [[ -z $slurm_conf ]] || slurm_conf=$(realpath -e -- "$slurm_conf") || die "cannot read the file of --slurm-conf"
    [[ -z $bellows_conf ]] || bellows_conf=$(realpath -e -- "$bellows_conf") || die "cannot read the file of --bellows-conf"
    repeated+=(--nodes "$nodes" --gpus "$gpus" --slurm "$suite" --slurm-conf "$slurm_conf"
      --bellows-conf "$bellows_conf" --spank-args "$spank_args")
    ((!accounting)) || repeated+=(--accounting)
    ((!elastic)) || repeated+=(--elastic)
    ((plugins)) || repeated+=(--no-plugins)
  fi
  [[ -z $user ]] || repeated+=(--user "$user")
  [[ $command != exec || -z $node ]] || repeated+=(--node "$node")
  [[ -z $skew ]] || repeated+=(--skew "$skew")
  [[ $command != stop-ctld ]] || repeated+=(--signal "$signal")
  ((!purge)) || repeated+=(--purge)
  for pair in "${environment[@]}"; do repeated+=(--env "$pair"); done
  repeated+=(-- "${arguments[@]}")
}

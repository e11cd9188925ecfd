# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Messages and timed steps, shared by quickstart, runtests, tests/fresh and tests/newer.
# The caller sets: build (directory for logs and stamps).

fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# One line of text, safe to show on a terminal.
last_line() {
  tail -c 2000 "$1" 2>/dev/null | tr '\r' '\n' | tr -dc '[:print:]\n' | grep -v '^ *$' | tail -n 1 | cut -c 1-110
}

# Sleeps without a process of its own, so that nothing is left when it is interrupted.
nap() {
  read -rt "$1" <> <(:) || true
}

# Says every 15 seconds what a long step is doing: heartbeat LOG
heartbeat() {
  local begin=$SECONDS
  while nap 15; do
    printf '    %d s: %s\n' "$((SECONDS - begin))" "$(last_line "$1")"
  done
}

# Runs a command as a named step with its output in a log: step TITLE LOGNAME CMD ARGS...
# Shows the end of the log and ends the program when the command fails, unless
# STEP_MAY_FAIL is set; then it returns the command's status. STEP_QUIET leaves the heartbeat out.
step() {
  local title=$1 log=$build/log/$2.log begin=$SECONDS beat rc=0
  shift 2
  mkdir -p "$build/log"
  printf '==> %s\n' "$title"
  : > "$log"
  [ -n "${STEP_QUIET-}" ] || heartbeat "$log" &
  beat=$!
  "$@" >> "$log" 2>&1 < /dev/null || rc=$?
  kill "$beat" 2>/dev/null
  wait "$beat" 2>/dev/null
  if [ "$rc" -ne 0 ] && [ -z "${STEP_MAY_FAIL-}" ]; then
    printf '    failed after %d s; the end of %s:\n' "$((SECONDS - begin))" "$log" >&2
    tail -n 40 "$log" | sed 's/^/    | /' >&2
    fail "\"$title\" failed with exit status $rc"
  fi
  [ "$((SECONDS - begin))" -le 1 ] || printf '    %d s\n' "$((SECONDS - begin))"
  return "$rc"
}

already() {
  printf '==> %s: already done\n' "$1"
}

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The shell that quickstart and runtests share does what it promises, also when things go wrong.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build=$work
# shellcheck source=tests/lib/common.sh
. "$top/tests/lib/common.sh"
# shellcheck source=tests/lib/apt.sh
. "$top/tests/lib/apt.sh"
# shellcheck source=tests/lib/snapshot.sh
. "$top/tests/lib/snapshot.sh"

# expect WHAT ACTUAL WANTED
expect() {
  [ "$2" = "$3" ] || printf '%s is "%s" instead of "%s"\n' "$1" "$2" "$3"
}

# The count of test points.
count() {
  printf '%b' "$2" | awk -v status="$1" -v limit=9 -f "$top/tests/lib/tap.awk"
}
expect count "$(count 0 'ok 1 - a\nok 2 # SKIP b\n1..2\n')" "1 0 1 " | point "passed and skipped points are counted"
expect count "$(count 1 '1..1\nnot ok 1 - a\n')" "0 1 0 " | point "failed points are counted"
expect count "$(count 0 '1..2\nok 1 - a\n')" "1 1 0 it planned 2 test points and printed 1 (exit status 0)" |
  point "missing points are a failure"
expect count "$(count 3 '1..1\nok 1 - a\n')" "1 1 0 all its test points passed, but its exit status is 3" |
  point "a bad exit status is a failure"
expect count "$(count 124 'ok 1 - a\n')" "1 1 0 it did not end within 9 s" | point "a missed deadline is a failure"
expect count "$(count 139 '')" "0 1 0 it printed no plan (exit status 139)" | point "no plan is a failure"
expect count "$(count 0 '1..0 # SKIP no GPU\n')" "0 0 1 " | point "a skipped file is counted"

diff <("$top/runtests" --unit --list | sed -n 's|^tests/unit/[a-z]*/\(test_[a-z0-9_]*\)\.cc$|\1|p' | sort) \
  <(sed -n '/^check_PROGRAMS +=/,/End of check_PROGRAMS/s|^\t\(test_[a-z0-9_]*\) .*|\1|p' "$top/tests/unit/Makefile.am" | sort) |
  point "every program of unit tests is run"

long=1
{
  expect "with --long" "$(wanted_packages | grep -cx python3-torch)" 1
  long=
  expect "without" "$(wanted_packages | grep -cx python3-torch)" 0
} | point "PyTorch is installed for the long form only"
long=

# policy-rc.d comes and goes, and what was there before returns.
policy=$work/policy-rc.d
policy_saved=$work/policy-rc.d.saved
{
  forbid_services
  "$policy"
  expect "its status" $? 101
  allow_services
  [ ! -e "$policy" ] || echo "it stayed"
} 2>&1 | point "no service starts while packages are installed"
{
  printf '#!/bin/sh\nexit 7\n' > "$policy"
  chmod 755 "$policy"
  forbid_services
  forbid_services # an interrupted run before this one
  allow_services
  "$policy"
  expect "the old policy's status" $? 7
  rm -f "$policy"
} 2>&1 | point "an earlier policy-rc.d returns, also after an interrupted run"

# A step that fails shows its log's end and its status.
{
  said=$( (step "Breaking" broken sh -c 'echo because; exit 3') 2>&1)
  expect "the exit status" $? 1
  [[ $said == *"| because"*'"Breaking" failed with exit status 3'* ]] || echo "it said: $said"
} | point "a failed step ends the program and says why"

# The snapshot sees what a run leaves.
{
  snapshot_roots=(/tmp)
  machine_snapshot "$work" > "$work/before"
  : > "$work/inside"
  outside=$(mktemp /tmp/bellows-snap-XXXXXX)
  ip link add bellows-snap type dummy 2>/dev/null && linked=1
  (setsid sleep 61.5 &) # no longer below this shell
  pid=$(pgrep -f -x 'sleep 61.5' | tail -n 1)
  machine_snapshot "$work" > "$work/after"
  kill "$pid"
  rm -f "$outside"
  [ -z "${linked-}" ] || ip link delete bellows-snap
  machine_difference "$work/before" "$work/after" > "$work/difference" && echo "it saw no difference"
  grep -qxF "left behind: file $outside" "$work/difference" || echo "it missed the file"
  grep -qF "left behind: process $pid sleep 61.5" "$work/difference" || echo "it missed the process"
  [ -z "${linked-}" ] || grep -qxF "left behind: link bellows-snap" "$work/difference" || echo "it missed the link"
  if grep -F "$work/" "$work/difference"; then echo "its own directory counted"; fi
} | point "a snapshot of the machine shows files, processes and links that were left"

# The picture of GPUs over time.
cat > "$work/events.jsonl" <<'EOF'
{"time":100.0,"job":1,"event":"DEPLOYING","cause":"started","gpus":2}
{"time":110.0,"job":1,"event":"PROCESSING","cause":"ranks run","gpus":2,"step":null}
{"time":140.0,"job":1,"event":"RESIZING","cause":"to 4","gpus":2,"step":10}
{"time":150.0,"job":1,"event":"PROCESSING","cause":"ranks run","gpus":4,"step":10}
{"time":180.0,"job":1,"event":"COMPLETED","cause":"done","gpus":4,"step":99}
{"time":18
EOF
{
  "$top/tests/lib/gpu-timeline" --width 40 --mark 160=poke "$work/events.jsonl" > "$work/picture"
  expect "the exit status" $? 0
  expect "4 GPUs" "$(sed -n 2p "$work/picture")" "   4 │                         ███████████████"
  expect "1 GPU" "$(sed -n 5p "$work/picture")" "   1 │░░░░░███████████████     ███████████████"
  grep -qx '      a   60.0 s  poke' "$work/picture" || cat "$work/picture"
} 2>&1 | point "the picture of GPUs over time shows sizes, waiting and marks"
{
  : > "$work/empty"
  "$top/tests/lib/gpu-timeline" "$work/empty" 2> /dev/null
  expect "the exit status" $? 1
} | point "no events are an error"
finish

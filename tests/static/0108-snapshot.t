#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The comparison of a machine before and after a run finds what is ours, and nothing of other people.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"
# shellcheck source=tests/lib/snapshot.sh
. "$top/tests/lib/snapshot.sh"

if [ "$(id -u)" -ne 0 ]; then
  echo "1..0 # SKIP only root can act as others"
  exit
fi
own=$(mktemp -d /tmp/bellows-snapshot.XXXXXX)
trap 'kill $(cat "$own"/pid.*) 2> /dev/null; rm -rf "$own" /tmp/bellows-mark.$$.*' EXIT

# A file, and a process that outlives its parent, of a user: leave UID
leave() {
  touch "/tmp/bellows-mark.$$.$1"
  chown "$1" "/tmp/bellows-mark.$$.$1"
  setsid --fork setpriv --reuid="$1" --regid="$1" --clear-groups sleep "60.$1" < /dev/null &> /dev/null
  until pgrep -f "^sleep 60.$1\$" > "$own/pid.$1"; do read -r -t 0.05 _ < <(sleep 1); done
}

machine_snapshot "$own" > "$own/before"
leave 12345
leave 65534
machine_snapshot "$own" > "$own/others"
machine_difference "$own/before" "$own/others" | grep -F -e "bellows-mark.$$." -e 'sleep 60.' | point "what other people leave is not ours"
leave 0
leave 20001
machine_snapshot "$own" > "$own/after"
machine_difference "$own/before" "$own/after" > "$own/difference"
for uid in 0 20001; do
  { grep -qxF "left behind: file /tmp/bellows-mark.$$.$uid" "$own/difference" || echo "not found"; } | point "a file of user $uid is found"
  { grep -qE "^left behind: process [0-9]+ sleep 60\\.$uid\$" "$own/difference" || echo "not found"; } | point "a process of user $uid is found"
done
finish

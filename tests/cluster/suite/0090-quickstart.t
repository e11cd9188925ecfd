#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 420
# alone
# quickstart as a stranger runs it: the main job reaches its accuracy, and the machine is as before.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../../.." && pwd)}
dir=$(mktemp -d "${TMPDIR:-/tmp}/bellows-quickstart-XXXXXX")
chmod 755 "$dir"
trap '"$top/quickstart" --stop --dir "$dir/q" > /dev/null 2>&1; rm -rf "$dir"' EXIT

[[ -n $has_pmix ]] || skip_all "this Slurm has no mpi/pmix, with which quickstart's job starts its ranks"
epochs=60
[ -z "${BELLOWS_LONG-}" ] || epochs=120
status=0
timeout -k 60 "$(seconds 360)" "$top/quickstart" --dir "$dir/q" --epochs "$epochs" > "$dir/out" 2>&1 < /dev/null || status=$?
is "$status" 0 "quickstart ends well"
[ "$status" -eq 0 ] || sed 's/^/# /' "$dir/out"
like "$(tail -n 6 "$dir/out" | grep "^accuracy")" '^accuracy: 9[5-9]\.[0-9] %$' "and prints the accuracy among its last lines"
like "$(cat "$dir/out")" 'bellows resize [0-9]+ 8' "the job was resized to 8 GPUs"
like "$(cat "$dir/out")" 'kill -9 of one rank' "lost a rank"
like "$(cat "$dir/out")" 'kill -9 of the whole node' "and lost a node"
is "$(cat "$dir/q/difference" 2>&1)" "" "no process, mount, link, device, cgroup or file is left outside its directory"
is "$("$top/quickstart" --nonsense > /dev/null 2>&1; echo $?)" 2 "a wrong option is usage, status 2"
done_testing

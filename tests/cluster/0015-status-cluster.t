#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 120
# bellows status --cluster: which policy slurmctld has in force, and what became of a newer file.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/tap.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
bellows=$build/launcher/bellows
[[ -x $bellows ]] || skip_all "$bellows is not built"

cluster_up --nodes=1 --gpus=2
policy=$CLUSTER/etc/bellows.yaml
mark=$(date +%s)
printf 'version: 1\ntenants: {vision: {}, speech: {}, third: {}}\n' >"$policy.new"
mv "$policy.new" "$policy"

status() { xc "$bellows" status --cluster "$@" 2>&1; }
field() { # KEY
  status --json | python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"
}
has() { [[ $(field "$1") =~ $2 ]]; }

ok "a new policy comes into force" poll 10 has tenants '^3$'
digest=$(xc "$bellows" explain --json --policy "$policy" -- -n1 |
  python3 -c "import json, sys; print(json.load(sys.stdin)['digest'])")
is "$(field digest)" "$digest" "its digest is shown"
ok "and since when" test "$(field since)" -ge "$mark"
like "$(status)" "^policy +digest $digest, in force since [0-9-]+ [0-9:]+, 3 tenants$" "also to people"
exits "which is success" 0 status
exits "for any user" 0 xc --user carol "$bellows" status --cluster
is "$(xc --user root squeue --noheader | wc -l)" 0 "no job comes of it"

echo "tenants: [" >"$policy"
ok "a broken file is told" poll 10 has problem "bellows.yaml:"
is "$(field digest)" "$digest" "and the policy before it"
like "$(status)" "rejected +$policy:" "to people, too"
exits "which is a failure" 1 status

printf 'version: 1\nenabled: false\n' >"$policy"
ok "the kill switch is told" poll 10 has enabled False

mc stop-ctld
exits "without slurmctld: 4" 4 status
rm "$policy"
mc start-ctld
ok "without any policy" poll 20 has problem "No such file"
is "$(field digest)" None "none is in force"
exits "which is a failure" 1 status

done_testing

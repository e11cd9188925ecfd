#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 120
# bellows status --cluster: which policy slurmctld has in force, what became of a newer file, and
# whether a second controller has another one.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
bellows=$build/launcher/bellows
[[ -x $bellows ]] || skip_all "$bellows is not built"

# A second controller, at an address that nobody has: the test writes its record.
conf=$(mktemp "${TMPDIR:-/tmp}/bellows-pair-XXXXXX")
trap 'rm -f "$conf"; tap_end' EXIT
echo 'SlurmctldHost=spare(192.0.2.1)' >"$conf"
cluster_up --nodes=1 --gpus=2 --slurm-conf "$conf"
state=$CLUSTER/spool/ctld
spare_says() { # DIGEST
  printf 'bellows-policy/1 spare 1700000000 %s\n' "$1" >"$state/bellows.policy.spare"
}
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
ok "it is written down for a second controller" poll 20 grep -qx "bellows-policy/1 ctl [0-9]* $digest" "$state/bellows.policy.ctl"
is "$(stat -c %a "$state/bellows.policy.ctl")" 600 "which nobody else reads"
spare_says "$digest"
if [[ -n ${BELLOWS_LONG:-} ]]; then
  spare_says 0123456789abcdef
  ok "a different policy is reported" poll 180 has other "'spare'.*0123456789abcdef"
  like "$(status)" "differs +controller spare has digest 0123456789abcdef, in force since 2023-" "to people, too"
  exits "which is a failure" 1 status
  like "$(<"$CLUSTER/log/slurmctld.log")" "different policies: controller ctl has digest $digest.*controller spare has" "and logged"
  spare_says "$digest"
  ok "until both have the same" poll 60 has other None
fi
is "$(field other)" None "while both have the same policy, nothing else is shown"
exits "and a success" 0 status
exits "for any user" 0 xc --user carol "$bellows" status --cluster
is "$(xc --user root squeue --noheader | wc -l)" 0 "the request creates no job"

echo "tenants: [" >"$policy"
ok "a broken file is reported" poll 10 has problem "bellows.yaml:"
is "$(field digest)" "$digest" "and the policy before it"
like "$(status)" "rejected +$policy:" "to people, too"
exits "which is a failure" 1 status

printf 'version: 1\nenabled: false\n' >"$policy"
ok "the kill switch is reported" poll 10 has enabled False

mc stop-ctld
exits "without slurmctld: 4" 4 status
rm "$policy"
mc start-ctld
ok "without any policy" poll 20 has problem "No such file"
is "$(field digest)" None "none is in force"
exits "which is a failure" 1 status

done_testing

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Of two bellowsd one decides and the other stands by; when the first dies, the second goes on.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

bellowsd=$build/elastic/bellowsd
[[ -x $bellowsd ]] || skip_all "$bellowsd is not built"
policy=$(mktemp)
cat >"$policy" <<'YAML'
version: 1
checkpoint_dir: "/shared/checkpoints/%u/%j"
controller: {addresses: ["ctl:6830", "ctl:6831"], dwell: 5, restarts_per_hour: 60}
frameworks: {digits: {}}
defaults: {gpus: {min: 1, max: 8, elastic: auto}}
tenants: {vision: {}}
default_tenant: vision
YAML
chmod 644 "$policy"  # bellowsd and this slurmctld are not root
cluster_up --nodes=2 --gpus=4 --elastic --bellows-conf "$policy"
rm -f "$policy"
second=$CLUSTER/log/second.log

# In the cluster, as SlurmUser: start_another LOG OPTION...
start_another() {
  local log=$1
  shift
  xc --user root setpriv --reuid=slurm --regid=slurm --clear-groups "$bellowsd" "$@" >"$log" 2>&1 &
}
says() { grep -q "$2" "$1"; } # LOG WORDS
answers() { xc bellows plan >/dev/null 2>&1; }
trains_on() { [[ $(gpus_held "$1" | cut -d' ' -f1) == "$2" && $(last_start job world) == "$2" ]]; } # JOB GPUS

poll 30 answers
first=$(xc --user root pgrep --exact bellowsd)
start_another "$second" --listen 0.0.0.0:6831
ok "a second bellowsd starts" poll 20 says "$second" 'listens on 0.0.0.0:6831'
start_another "$CLUSTER/log/third.log" --listen 0.0.0.0:6831
ok "a third finds the port taken and says so" poll 20 says "$CLUSTER/log/third.log" 'cannot listen on 0.0.0.0:6831; .*another bellowsd'
job=$(submit_counter job --gpus=1 -- --steps 10000000 --sleep-us 1000 --work-us 40000 --save-every 50)
ok "the first resizes a job" poll 60 trains_on "$job" 2
unlike "$(<"$second")" 'decides' "while the second stands by"
like "$(xc --user root curl -s -o /dev/null -w '%{http_code}' -X POST -d x http://ctl:6831/v1/plan)" '^503$' "and tells callers so"

xc --user root kill -KILL "$first"
ok "the first is killed: the second decides" poll 20 says "$second" 'decides'
ok "it answers users who ask the first address first" poll 20 answers
ok "and goes on to resize the job" poll 90 trains_on "$job" 4
let_end job "$job" 200
ends_well job "$job" "under both"

start_another "$CLUSTER/log/dry.log" --listen 0.0.0.0:6832 --dry-run
ok "one that only looks starts beside it" poll 20 says "$CLUSTER/log/dry.log" 'decides'
again=$(submit_counter job --gpus=1 -- --steps 10000000 --sleep-us 1000 --work-us 40000 --save-every 50)
ok "and does not keep the other from deciding" poll 60 trains_on "$again" 2
unlike "$(<"$CLUSTER/log/dry.log")" 'plan .*->' "it orders nothing"
done_testing

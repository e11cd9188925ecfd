#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# A pool that has the size which its policy finds in what members say: a metric, votes, and nothing at all; within its limits,
# whatever they say.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/pool/pool.sh
. "$TAP_HOME/pool/pool.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
[[ -x $build/pool/bellows-pool ]] || skip_all "bellows-pool is not built"
source_dir=$(realpath "$TAP_HOME/../..")
cluster_up --nodes=2 --gpus=1
home=$CLUSTER/shared/home/alice

# Each member sees the whole load, as of a queue that they share.
cat >"$home/worker.py" <<'S'
import time
from bellows.pool import agent

agent.listen(1)
agent.ready()
voted = "0"
while True:
    with open("load") as file:
        load = file.read().strip()
    if load:
        agent.metric("load", float(load))
    with open("votes") as file:
        votes = file.read().strip()
    if votes != voted:
        voted = votes
        agent.vote(int(votes))
    time.sleep(0.2)
S
cat >"$home/worker.sbatch" <<S
#!/bin/bash
export PYTHONPATH=$source_dir/python PYTHONDONTWRITEBYTECODE=1
exec bellows pool member -- python3 worker.py
S
cat >"$home/policy.yaml" <<'S'
min: 1
max: 6
burst_interval: 3
stale: 5
stabilisation: 3
panic_window: 2
targets: [{metric: load, per_member: 10, of: mean}]
S
sed 's/per_member: 10/per_member: 0/' "$home/policy.yaml" >"$home/wrong.yaml"
echo 5 >"$home/load"
echo 0 >"$home/votes"

pool() { xc bellows pool "$@"; }
ready() { [[ $(pool show work --json | jq .ready) == "$1" ]]; }
wants() { [[ $(pool show work --json | jq .wanted) =~ ^$1$ ]]; }

printf '%s\n' 5 5 35 35 35 35 >"$home/calls"
is "$(pool simulate "$home/policy.yaml" --load "$home/calls" --call-ms 1000 --json | jq -c '[.seconds[].wanted]')" "[1,1,4,4,4,4]" \
  "a policy is tried in simulated time"
exits "a policy that is wrong is refused" 1 pool create work --policy "$home/wrong.yaml" "$home/worker.sbatch"
like "$(pool create work --policy "$home/wrong.yaml" "$home/worker.sbatch" 2>&1)" "wrong.yaml:[0-9]+:[0-9]+: per_member must be" \
  "with its line"
ok "a pool with a policy is made" pool create work --policy "$home/policy.yaml" "$home/worker.sbatch"
ok "and has its least size" poll 30 ready 1
echo 35 >"$home/load"
ok "it grows with its metric" poll 30 ready 4
like "$(pool explain work)" "^4 members: .*load" "and says so"
echo 1000000 >"$home/load"
ok "up to its most, and not beyond" poll 30 ready 6
is "$(pool show work --json | jq .wanted)" 6 "whatever members say"
echo 15 >"$home/load"
ok "it shrinks when less is enough for a while" poll 40 ready 2
: >"$home/load"
sleep 6
is "$(pool show work --json | jq .wanted)" 2 "it does not shrink because it hears nothing"
like "$(pool explain work)" "say how they are" "and says why"
echo 15 >"$home/load"
ok "a person has the last word" pool scale work 3
ok "over the policy" poll 30 ready 3
ok "until it decides again" pool scale work auto
ok "as before" poll 40 ready 2
echo 1 >"$home/votes"
ok "votes make it grow" poll 20 wants "[3-6]"
ok "the pool is deleted" pool delete work

cat >"$home/policy.lua" <<'S'
metrics = {"load"}
function members(signals) return signals.metrics.load.median / 5 end
S
echo "function members(signals) return 1" >"$home/wrong.lua"
echo 10 >"$home/load"
like "$(pool create work --min 1 --max 6 --policy "$home/wrong.lua" "$home/worker.sbatch" 2>&1)" "wrong.lua:2: 'end' expected" \
  "a script that is wrong is refused, with its line"
ok "a pool with a script as its policy is made" pool create work --min 1 --max 6 --policy "$home/policy.lua" "$home/worker.sbatch"
ok "and has the size that it returns" poll 30 ready 2
ok "the pool is deleted" pool delete work
is "$(pool_pids 'bellows-pool (member|keeper)')" "" "and leaves nobody"
done_testing

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# A pool and a training share four GPUs: bellowsd gives the pool more when it needs more and takes them from the training,
# which gets them back. The pool has no more than bellowsd says, and keeps its size when bellowsd is gone.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

# shellcheck disable=SC2154
[[ -x $build/pool/bellows-pool && -x $build/elastic/bellowsd ]] || skip_all "bellows-pool or bellowsd is not built"
source_dir=$(realpath "$TAP_HOME/../..")
cluster_up --nodes=1 --gpus=4 --elastic
home=$CLUSTER/shared/home/alice

cat >"$home/worker.py" <<'S'
import time
from bellows.pool import agent

agent.listen(1)
agent.ready()
while True:
    with open("load") as file:
        agent.metric("load", float(file.read()))
    time.sleep(0.3)
S
cat >"$home/worker.sbatch" <<S
#!/bin/bash
#SBATCH --gpus=1
export PYTHONPATH=$source_dir/python PYTHONDONTWRITEBYTECODE=1
exec bellows pool member -- python3 worker.py
S
cat >"$home/policy.yaml" <<'S'
min: 1
max: 4
stabilisation: 2
panic_window: 1
targets: [{metric: load, per_member: 10, of: mean}]
S
set_load() { echo "$1" >"$home/load.new" && mv "$home/load.new" "$home/load"; }
set_load 5

pool() { xc bellows pool "$@"; }
ready() { pool show work --json | jq .ready; }
has_ready() { [[ $(ready) =~ ^$1$ ]]; }
wants() { [[ $(pool show work --json | jq .wanted) == "$1" ]]; }
holds() { [[ $(gpus_held "$train" | cut -d' ' -f1) =~ ^$1$ ]]; }
# What bellowsd says of the pool: its members' GPUs, and how many members it may have.
plan_of_pool() { xc bellows plan --json | jq -c '[.pools[].services[] | .gpus, .members]'; }

ok "a pool is made" pool create work --policy "$home/policy.yaml" "$home/worker.sbatch"
ok "and has its least size" poll 60 has_ready 1
train=$(submit_counter train --gpus=2 --gpus-range=1-4 -- --steps 10000000 --sleep-us 1000 --work-us 40000 --save-every 50)
ok "a training gets what the pool leaves" poll 90 holds 3
is "$(plan_of_pool)" "[1,1]" "bellowsd counts the pool's member, and lets it have no second one"

set_load 35
ok "the load jumps, and the training shrinks" poll 90 holds "[12]"
ok "for more members of the pool" poll 60 has_ready "[23]"
like "$(pool explain work)" "load.*bellowsd lets it have [23] now" "which says who limits it"
is "$(($(ready) + $(gpus_held "$train" | cut -d' ' -f1)))" 4 "together they have all GPUs"
like "$(xc squeue --noheader --format='%j %T' --user alice)" "^([a-z.]+ RUNNING"$'\n'"?)+$" "and nobody waits"

mc stop-bellowsd --signal KILL
before=$(ready)
set_load 39
is "$(sleep 4; ready)" "$before" "without bellowsd the pool keeps its size"
mc start-bellowsd

set_load 5
ok "when the load falls the pool shrinks" poll 60 has_ready 1
ok "and the training gets its GPUs back" poll 90 holds 3
ok "the pool is deleted" pool delete work
let_end train "$train" 200
ends_well train "$train" "the training"
done_testing

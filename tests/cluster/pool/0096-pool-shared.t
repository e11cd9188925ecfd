#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# Fields that the members of a pool share: they are there while the keeper, members and the leader of etcd are killed, and after
# the whole pool has ended and begun again; nobody else can read them.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/pool/pool.sh
. "$TAP_HOME/pool/pool.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
[[ -x $build/pool/bellows-pool-shared ]] || skip_all "bellows-pool-shared is not built"
source_dir=$(realpath "$TAP_HOME/../..")
cluster_up --nodes=3 --gpus=1
home=$CLUSTER/shared/home/alice
dir=$home/.bellows/pools/kept

cat >"$home/idle.sbatch" <<'S'
#!/bin/bash
port=$((20000 + SLURM_JOB_ID % 20000))
exec bellows pool member --port $port -- python3 -m http.server $port
S
pool() { xc bellows pool "$@"; }
ready() { [[ $(pool show kept --json | jq .ready) == "$1" ]]; }
# python EXPRESSION, with the pool's fields as `shared`
python() { # [--user USER] EXPRESSION
  local user=alice
  [[ $1 != --user ]] || { user=$2; shift 2; }
  xc --user "$user" env PYTHONPATH="$source_dir/python" python3 -B -c "
from bellows.pool import Shared
shared = Shared('test', pool='$dir', timeout=20)
print($1)" 2>&1 | tail -n 1
}
etcds() { pool_pids '^[a-z/]*etcd --name'; }
serve() { (($(etcds | wc -l) == $1)); }
leader() {
  xc env PYTHONPATH="$source_dir/python" python3 -B -c "
from bellows.pool.gateway import Deadline, Gateway
etcd = Gateway('$dir')
def ask(path): return etcd.ask(path, {}, Deadline(20))
leader = ask('/v3/maintenance/status')['leader']
print(*(one['name'] for one in ask('/v3/cluster/member/list')['members'] if one['ID'] == leader))"
}
kill_leader() { kill -9 "$(pool_pids "^[a-z/]*etcd --name=$(leader) ")"; }

ok "a pool with shared fields is made" pool create kept --min 2 --max 3 --shared 3 "$home/idle.sbatch"
ok "and has members" poll 40 ready 2
ok "and three servers" poll 40 serve 3
is "$(python 'shared.add("count", 1)')" 1 "a field can be changed"
is "$(python 'shared.compare_and_set("owner", None, "me")')" True "and compared and set"
like "$(python --user bob 'shared["count"]')" "key|denied|ermission" "not by another user"

for i in 2 3 4; do
  ok "etcd's leader is killed" poll 30 kill_leader
  is "$(python 'shared.add("count", 1)')" $i "and not missed"
  ok "and comes back" poll 40 serve 3
done
kill -9 "$(pool_pids 'bellows-pool keeper kept$' | head -n 1)"
is "$(python 'shared.add("count", 1)')" 5 "nor is a killed keeper"
ok "which comes back" poll 60 ready 2

# The keeper first: it would replace the others.
xc scancel --name kept.keeper
poll 30 eval '[[ -z $(ask_slurm squeue --noheader --name=kept.keeper) ]]'
xc scancel --user alice
ok "all of its jobs are ended" poll 60 eval '[[ -z $(etcds) && -z $(ask_slurm squeue --noheader) ]]'
ok "the pool is started again" pool start kept
ok "and has members" poll 60 ready 2
is "$(python 'shared.add("count", 1)')" 6 "and what was acknowledged"
is "$(python 'shared["owner"]')" me "all of it"
ok "the pool is deleted" pool delete kept
is "$(pool_pids 'bellows-pool|etcd --name')" "" "and leaves nobody"
done_testing

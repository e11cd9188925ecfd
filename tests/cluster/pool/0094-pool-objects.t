#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# An elastic object in Python whose pool grows, shrinks and loses members, its keeper and a node, while callers call it all the
# time: idempotent calls all succeed, and of the others each has run once or not at all, as its caller was told.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/pool/pool.sh
. "$TAP_HOME/pool/pool.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

[[ -x $build/pool/bellows-pool ]] || skip_all "bellows-pool is not built"
source_dir=$(realpath "$TAP_HOME/../..")
impatient_cluster_up --nodes=3 --gpus=1
home=$CLUSTER/shared/home/alice
install -m 644 "$source_dir/tests/unit/python/pool_member.py" "$TAP_HOME/pool/calls.py" "$home"

cat >"$home/index.sbatch" <<S
#!/bin/bash
#SBATCH --cpus-per-task=1
export PYTHONPATH=$source_dir/python PYTHONDONTWRITEBYTECODE=1 LEDGER=$home/ledger
exec bellows pool member -- python3 -c 'import pool_member; pool_member.Index().serve()'
S

pool() { xc bellows pool "$@"; }
ready() { [[ $(pool show index --json | jq .ready) == "$1" ]]; }
job_of() { pool show index --json | jq ".members[$1].job"; }                                             # INDEX
is_replaced() { ready 3 && ! pool show index --json | jq '.members[].job' | grep -qx "$1"; }             # JOB
goes_on() { poll 15 eval "(( \$(wc -l <'$home/ledger') > $(($(wc -l <"$home/ledger") + 20)) ))"; }

ok "a pool of objects is made" pool create index --min 1 --max 6 "$home/index.sbatch"
ok "and has a member" poll 30 ready 1
touch "$home/ledger"
TAP_LIMIT=300 xc env PYTHONPATH="$source_dir/python" PYTHONDONTWRITEBYTECODE=1 python3 "$home/calls.py" index "$home/stop" "$home/ledger" \
  >"$home/calls" 2>&1 &
caller=$!
ok "calls run" goes_on
ok "it grows" pool scale index 4
ok "to four" poll 30 ready 4
ok "it shrinks" pool scale index 3
ok "to three" poll 30 ready 3

victim=$(job_of 0)
kill -9 "$(pids_of "$victim" python3 pool_member | head -n 1)"
ok "a killed member is replaced" poll 30 is_replaced "$victim"
victim=$(job_of 0)
kill -9 "$(pids_of "$victim" bellows-pool 'pool member' | head -n 1)"
ok "and one whose agent was killed" poll 40 is_replaced "$victim"
kill -9 "$(pool_pids 'bellows-pool keeper index$' | tail -n 1)"
ok "a killed keeper comes back" poll 15 ready 3
ok "and calls run" goes_on
kill_ctld
ok "also without slurmctld" goes_on
mc start-ctld
ok "a member can be drained" pool drain index "$(job_of 0)"
ok "for another" poll 30 ready 3
ok "and calls run again" goes_on

touch "$home/stop"
wait "$caller"
like "$(<"$home/calls")" "^[0-9]+ echoes, [0-9]+ done, [0-9]+ unknown, 0 refused, slowest .*, exact$" "each call ran once at most, as told"
diag "$(<"$home/calls")"
exits "a caller of another user is refused" 1 xc --user bob env PYTHONPATH="$source_dir/python" python3 -B -c \
  "from bellows import pool; pool.connect('$home/.bellows/pools/index').echo(1)"
ok "the pool is deleted" pool delete index
is "$(pool_pids 'bellows-pool (member|keeper)|pool_member')" "" "and leaves nobody"
done_testing

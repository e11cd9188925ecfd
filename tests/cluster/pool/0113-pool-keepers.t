#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# A keeper that is killed while it submits, and with a member that drains: the next one takes over at once, submits nothing
# twice, takes back what comes late, and goes on with the drain. Who is no member of the pool can't say that it is.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/pool/pool.sh
. "$TAP_HOME/pool/pool.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

[[ -x $build/pool/bellows-pool ]] || skip_all "bellows-pool is not built"
source_dir=$(realpath "$TAP_HOME/../..")
impatient_cluster_up --nodes=2 --gpus=1
home=$CLUSTER/shared/home/alice
dir=$home/.bellows/pools/held

cat >"$home/held.py" <<'S'
import os, time
from bellows import pool

class Held(pool.ElasticObject):
    @pool.idempotent
    def who(self):
        return os.environ["SLURM_JOB_ID"]

    def hold(self):
        with open("holding", "w") as file:
            file.write(self.who())
        while not os.path.exists("let-go"):
            time.sleep(0.05)
        return self.who()

Held().serve()
S
cat >"$home/held.sbatch" <<S
#!/bin/bash
#SBATCH --cpus-per-task=1
export PYTHONPATH=$source_dir/python PYTHONDONTWRITEBYTECODE=1
cd $home && exec bellows pool member -- python3 held.py
S
# While there is a file `slow` it does not say that it has submitted a member. With `late`, one member is submitted by
# whoever outlives it, when that is gone, and waits in the queue for good.
mkdir "$home/bin"
cat >"$home/bin/sbatch" <<S
#!/bin/bash
sbatch=\$(PATH=\${PATH#*:} type -P sbatch)
if [[ "\$*" == *member.sbatch* ]] && mv $home/late $home/later 2>/dev/null; then
  setsid sh -c "while [ -e $home/later ]; do sleep 0.1; done; exec \$sbatch --hold \$* >$home/came" &
  echo \$\$ >$home/waits && exec sleep 300
fi
job=\$(\$sbatch "\$@") || exit
if [[ -e $home/slow && "\$*" == *member.sbatch* ]]; then
  echo "\$job" >>$home/submitted
  while [[ -e $home/slow ]]; do sleep 0.1; done
fi
echo "\$job"
S
chmod 755 "$home/bin/sbatch"

pool() { xc bellows pool "$@"; }
members() { pool show held --json | jq -r ".members[] | $1"; } # FILTER
ready() { [[ $(pool show held --json | jq .ready) == "$1" ]]; }
jobs() { ask_slurm squeue --noheader --states=all --name=held.member --format=%i | grep -cvx "${forged:-none}"; }
keepers() { pool_pids '^[^ ]*bellows-pool keeper held$'; }
call() { xc env PYTHONPATH="$source_dir/python" python3 -B -c "
from bellows import pool
with pool.connect('held', timeout=200) as held: print($1)"; } # EXPRESSION

xc sh -c 'export PATH="$HOME/bin:$PATH"; exec bellows pool create held --min 1 --max 4 --drain 300 held.sbatch' >/dev/null
poll 60 ready 1 || bail "the pool has no member"
touch "$home/slow"
pool scale held 3 >/dev/null
ok "a keeper submits" poll 30 test -s "$home/submitted"
killed=$(keepers | tail -n 1)
kill -9 "$killed"
is_replaced() { (($(keepers | wc -l) == 2)) && [[ $(keepers | tail -n 1) != "$killed" ]]; }
ok "one that is killed meanwhile is replaced at once" poll 5 is_replaced
rm "$home/slow"
ok "by one that brings the pool to its size" poll 60 ready 3
is "$(jobs)" 3 "and submits no member twice"

touch "$home/late"
pool scale held 4 >/dev/null
ok "a keeper submits, and Slurm is slow to take it" poll 30 test -s "$home/waits"
killed=$(keepers | tail -n 1)
kill -9 "$killed"
ok "one that is killed meanwhile is replaced" poll 5 is_replaced
ok "its sbatch ends with it" poll 5 eval "! kill -0 $(<"$home/waits") 2>/dev/null"
ok "and the next brings the pool to its size" poll 60 ready 4
rm "$home/later"
poll 30 test -s "$home/came" || bail "no job comes late"
late_is() { [[ $(job_field "$(<"$home/came")" JobState) == "$1" ]]; }
ok "what Slurm takes late is taken back" poll 30 late_is CANCELLED
is "$(pool show held --json | jq .ready) $(jobs)" "4 5" "and nobody else"

# A job of the pool's owner, with the pool's key and a member's name, as of a pool of that name in another folder.
forged=$(xc env BELLOWS_POOL="$dir" sbatch --parsable --job-name=held.member --output="$home/forged.out" \
  --wrap='exec bellows pool member --port $((20000 + SLURM_JOB_ID % 20000)) -- python3 -m http.server $((20000 + SLURM_JOB_ID % 20000))')
ok "a job that is no member can't report as one" poll 30 grep -qs "Slurm has no such member of this pool" "$home/forged.out"
is "$(members "select(.job == $forged) | .job")" "" "and is none"
xc scancel "$forged"

TAP_LIMIT=300 call 'held.hold()' >"$home/held" 2>&1 &
caller=$!
poll 30 test -s "$home/holding" || bail "no call runs: $(<"$home/held")"
job=$(<"$home/holding")
drains() { [[ $(members "select(.job == $job) | .state") == draining ]]; }
pool drain held "$job" >/dev/null
ok "a member with a call drains" poll 30 drains
# The supervisor too: the keeper's job starts it again.
killed=$(keepers | xargs)
# shellcheck disable=SC2086
kill -9 $killed
is_new() { [[ -n $(keepers) ]] && ! grep -qw "$(keepers | head -n 1)" <<<"$killed"; }
ok "its keeper is killed, and comes back" poll 60 is_new
ok "with the pool at its size" poll 60 ready 4
ok "the member still drains" poll 30 drains
unlike "$(call '{held.who() for _ in range(40)}')" "$job" "and gets no new calls"
touch "$home/let-go"
wait "$caller"
is "$(<"$home/held")" "$job" "its call ends as it should"
is_over() { [[ $(job_field "$job" JobState) == COMPLETED ]]; }
ok "and so does its job" poll 60 is_over
is "$(jobs)" 6 "which one other job has replaced"
ok "the pool is deleted" pool delete held
is "$(keepers)" "" "and leaves no keeper"
done_testing

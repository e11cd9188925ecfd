#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# An elastic pool of unmodified HTTP servers: it is made, grows, shrinks, and is deleted, and whatever is killed
# is replaced, while a caller that goes from one member to the next always gets an answer.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/pool/pool.sh
. "$TAP_HOME/pool/pool.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

[[ -x $build/pool/bellows-pool ]] || skip_all "bellows-pool is not built"
impatient_cluster_up --nodes=3 --gpus=1
home=$CLUSTER/shared/home/alice
pools=$home/.bellows/pools

# The port is the job's own: members share nodes.
cat >"$home/web.sbatch" <<'S'
#!/bin/bash
#SBATCH --cpus-per-task=1
port=$((20000 + SLURM_JOB_ID % 20000))
exec bellows pool member --port $port -- python3 -m http.server $port
S

pool() { xc bellows pool "$@"; }
ready() { [[ $(pool show web --json | jq .ready) == "$1" ]]; }
member() { pool show web --json | jq ".members[$1].$2" -r; } # INDEX FIELD
keeper_pid() { pool_pids 'bellows-pool keeper web$' | tail -n 1; }
members_running() { ask_slurm squeue --noheader --states=R --name=web.member --format=%i | wc -l; }
are_running() { [[ $(members_running) == "$1" ]]; }

exits "a pool without a batch script is refused" 1 pool create web "$home/nothing.sbatch"
exits "so is a name that no pool can have" 2 pool create 'a b' "$home/web.sbatch"
exits "and a least size above the most" 1 pool create web --min 3 --max 2 "$home/web.sbatch"
is "$(ls -A "$pools" 2>/dev/null)" "" "which leaves nothing"
exits "one that is not there cannot be shown" 1 pool show web

sed -i 's/^    accounts: .vision.$/&\n    pools: {members: 5}/' "$CLUSTER/etc/bellows.yaml"
limited() { xc sbatch --test-only --pool=big:1-6 --wrap true 2>&1 | grep -q 'at most'; }
ok "the tenant's pools are limited" poll 30 limited
exits "a larger one is refused" 3 pool create big --max 6 "$home/web.sbatch"
like "$(pool create big --max 6 "$home/web.sbatch" 2>&1)" \
  "refuses the pool's keeper: .*--pool=big:1-6 is for 6 members, but a pool of tenant vision may have 5 at most" \
  "with a sentence that names the limit"
like "$(pool create big --keeper-option=--gpus=1 "$home/web.sbatch" 2>&1)" \
  "--pool=big:1-1 is for the keeper of a pool, which has no GPUs; leave out --gpus=1" "so is a keeper with GPUs"
is "$(ls -A "$pools" 2>/dev/null)" "" "which leaves nothing"

ok "a pool is made" pool create web --min 1 --max 5 "$home/web.sbatch"
ok "and has a member that takes calls" poll 30 ready 1
exits "there is one of a name" 3 pool create web "$home/web.sbatch"
keeper_job=$(pool show web --json | jq .keeper_job)
like "$(ask_slurm scontrol --oneliner show job "$keeper_job")" \
  "AdminComment=bellows/1 tenant=vision gpus=0 [^;]*pool=web:1-5" "the keeper's contract has the pool's range"
like "$(ask_slurm scontrol --oneliner show job "$(member 0 job)")" \
  "AdminComment=bellows/1 tenant=vision gpus=0 [^;]*pool=web( |$)" "and that of a member its name"
like "$(xc scontrol update job="$keeper_job" requeue=0 2>&1; job_field "$keeper_job" Requeue)" \
  "1$" "nobody switches off that the keeper is requeued"
is "$(stat -c %a "$pools/web/key.pem")" 600 "only its owner can read the key"
exits "nobody else sees it" 1 xc --user bob bellows pool show web
like "$(xc curl -s "http://$(pool endpoint web)/")" "Directory listing" "the member answers"
like "$(pool explain web)" "^1 members: 1 members are enough" "the pool says why it has its size"
is "$(pool endpoint web --json | jq -r '.[0].labels.pool')" web "Prometheus can find its members"

# A caller: each second some calls, each of another member, once more where one fails.
cat >"$home/caller.sh" <<'S'
n=0 failed=0
while [[ ! -e stop ]]; do
  addresses=$(bellows pool endpoint web 2>/dev/null) || addresses=$last
  last=$addresses
  for address in $addresses; do
    n=$((n + 1))
    curl -s --max-time 2 -o /dev/null "http://$address/" && continue
    for other in $(bellows pool endpoint web 2>/dev/null || echo "$last"); do
      curl -s --max-time 2 -o /dev/null "http://$other/" && continue 2
    done
    failed=$((failed + 1))
  done
  sleep 0.1
done
echo "$n calls, $failed failed" >calls
S
TAP_LIMIT=300 xc bash "$home/caller.sh" &
caller=$!

ok "it grows" pool scale web 4
ok "to what was set" poll 30 ready 4
is "$(ask_slurm squeue --noheader --name=web.member | wc -l)" 4 "with a job for each member"
exits "not beyond its most" 1 pool scale web 6
ok "it shrinks" pool scale web 2
ok "by members that drain" poll 30 are_running 2
like "$(cat "$pools"/web/log/*.out)" "drains within 30 s: the pool does not need it" "which are told"
first=$(member 0 job)
ok "a member can be replaced" pool drain web "$first"
ok "by another one" poll 30 eval "ready 2 && [[ \$(member 0 job) != $first ]]"

victim=$(member 0 job)
kill -9 "$(pids_of "$victim" python3 http.server | head -n 1)"
ok "a killed member is replaced" poll 30 eval "ready 2 && [[ \$(member 0 job) != $victim ]]"

jobs_before=$(ask_slurm squeue --noheader --name=web.member --format=%i | sort | xargs)
kill -9 "$(keeper_pid)"
ok "a killed keeper is started again" poll 60 ready 2
is "$(ask_slurm squeue --noheader --name=web.member --format=%i | sort | xargs)" "$jobs_before" \
  "with the members that were there"
like "$(pool explain web)" "scale. has set 2" "and knows what was ordered"

kill_ctld
kill -9 "$(pids_of "$(member 0 job)" python3 http.server | head -n 1)"
ok "without slurmctld the other member takes calls" poll 20 ready 1
mc start-ctld
ok "and the lost one is replaced when it is back" poll 60 ready 2

# A node that has a member and not the keeper, whose own loss is a matter of bellows run.
keeper_node=$(job_field "$(pool show web --json | jq .keeper_job)" BatchHost)
ok "it grows onto other nodes" pool scale web 5
ok "all of them" poll 30 ready 5
node=$(pool show web --json | jq -r "[.members[].node | select(. != \"$keeper_node\")][0]")
# Where all members are on one node, its loss is felt.
places=$(pool show web --json | jq -r ".members[].node" | sort -u | wc -l)
if [[ $node =~ ^n[1-3]$ ]] && ((places > 1)); then
  mc kill-node "${node#n}"
  ok "members of a lost node take no calls" \
    poll 30 eval "[[ -z \$(pool endpoint web | grep '^$node:') ]]"
  ok "and are replaced" poll 90 ready 5
  mc start-node "${node#n}"
else
  skip "members of a lost node take no calls" "all are on the keeper's node"
  skip "and are replaced" "all are on the keeper's node"
fi

touch "$home/stop"
wait "$caller"
like "$(cat "$home/calls")" "^[0-9]+ calls, 0 failed$" "no caller was left without an answer"
diag "$(cat "$home/calls")"

# What the job around a sbatch has of Bellows is not the pool's.
cat >"$home/inside.sh" <<'S'
#!/bin/bash
bellows pool create inner --max 2 web.sbatch
S
id=$(submit -- --framework=plain --gpus=1 --output="$home/inside.out" inside.sh)
poll 30 job_is "$id" COMPLETED
inner() { [[ $(pool show inner --json | jq .ready) == 1 ]]; }
ok "a pool can be made inside a job" poll 30 inner
like "$(ask_slurm scontrol --oneliner show job "$(pool show inner --json | jq .keeper_job)")" \
  "AdminComment=bellows/1 tenant=vision gpus=0 [^;]*pool=inner:1-2" "its keeper has a contract of its own"
ok "and it is deleted" pool delete inner

ok "the pool is deleted" pool delete web
is "$(ls -A "$pools")" "" "with its directory"
poll 20 eval '[[ -z $(ask_slurm squeue --noheader) ]]'
is "$(ask_slurm squeue --noheader)" "" "and all of its jobs"
is "$(pool_pids 'bellows-pool (member|keeper)')" "" "nobody is left"
is "$(find /tmp "$CLUSTER"/run -name 'bellows-pool-*' 2>/dev/null)" "" "and no socket"
done_testing

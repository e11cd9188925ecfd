#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# Failures around the ranks: memory limits, an outage of slurmctld, a drained node, a node that is cut
# off from two jobs, of which one was submitted with --no-kill. Nobody helps.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

outage=12
[[ -z ${BELLOWS_LONG:-} ]] || outage=60
SLURM_LINES=$'SelectTypeParameters=CR_CPU_Memory\nDefMemPerCPU=100' impatient_cluster_up --nodes=3 --gpus=4
home=$CLUSTER/shared/home/alice
count() { echo --steps "$1" --sleep-us 10000 --save-every 50; }
# The memory cgroup of a job on this node, by the one that its agent is in.
memory_cgroup() { # JOB
  local agent line
  agent=$(pids_of "$1" bellows 'bellows agent' | head -n 1)
  line=$(grep -E '^[0-9]+:memory:/' "/proc/$agent/cgroup") &&
    line=/sys/fs/cgroup/memory${line#*:memory:} || line=/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$agent/cgroup")
  echo "${line%/step_*}"
}
memory_used() { cat "$(memory_cgroup "$1")"/memory.{usage_in_bytes,current} 2>/dev/null; } # JOB
# Of memory that belongs to no file, also of the cgroups below: as the first version names it, else the second.
memory_shared() { # JOB
  awk '$1 == "total_shmem" { all = $2 } $1 == "shmem" { here = $2 } END { print all ? all : here }' \
    "$(memory_cgroup "$1")/memory.stat"
}
copies_of_mb() { (($(memory_shared "$1") >= $2 * 1000000)); } # JOB MB
host_of() { xc --user root squeue --noheader --jobs="$1" --format=%B | tr -d n; } # JOB

# Memory is limited on the third node.
sed -i 's/ConstrainRAMSpace=no/ConstrainRAMSpace=yes\nAllowedSwapSpace=0\nConstrainSwapSpace=yes/' "$CLUSTER/etc/cgroup.conf"
mc kill-node 3 && mc start-node 3
poll 60 node_is 3 idle
# The copies of what is saved: 160 MB of rows need 320 for them; 40 MB need 80.
misfit=$(submit_counter misfit --gpus=1 --mem=300 --nodelist=n3 --export=ALL,RUN_OPTIONS=--max-restarts=0 -- \
  --steps 10 --rows 20000000)
fits=$(submit_counter fits --gpus=1 --mem=400 --nodelist=n3 -- --steps 100000 --save-every 10 --rows 5000000)

# A rank that takes more memory than the job may have, right after the first save.
# shellcheck disable=SC2046
eats=$(submit_counter eats --gpus=2 --mem=400 --nodelist=n3 -- $(count 300) --eat 1000)
poll 40 commits_past "$eats" 49
hurts "$eats"

# Training and saving go on without slurmctld; a stop waits for it. The other has to leave its node later.
# shellcheck disable=SC2046
outlasts=$(submit_counter outlasts --gpus=2 --nodelist=n1 -- $(count 100000))
# shellcheck disable=SC2046
leaves=$(submit_counter leaves --gpus=2 -- $(count 100000))
poll 40 commits_past "$outlasts" 49 || bail "the job does not commit: $(out_of outlasts | tail -n 5)"
survives eats "$eats" "a memory limit" 'rank 0 on n3 was killed .*memory'
ok "a memory limit: a state whose copies pass it ends the job" poll 40 job_is "$misfit" FAILED
like "$(out_of misfit)" \
  'array rows: with it the copies .* need 320[0-9]{6} bytes, and there are [123][0-9]{8} for them; give the job more memory' \
  "a memory limit: and is told so when it is registered"
ok "a memory limit: a state whose copies fit is saved" poll 40 commits_past "$fits" 19
ok "a memory limit: the job's cgroup has both copies" poll 20 copies_of_mb "$fits" 80 ||
  diag "$(memory_cgroup "$fits"): $(memory_shared "$fits") bytes shared"
used=$(memory_used "$fits")
ok "a memory limit: they and the state count against it" test "$((used > 120000000 && used <= 400 << 20))" = 1 ||
  diag "$used bytes used"
xc scancel "$fits"
# Not in the outage: slurmstepd tries only once a minute to tell slurmctld that a job has ended.
ends_well eats "$eats" "a memory limit"

mc stop-ctld
stopped=$(now_us)
before=$(committed "$outlasts")
ok "an outage of slurmctld: commits continue" poll 20 commits_past "$outlasts" $((before + 100))
poll $((outage + 10)) since "$stopped" $((outage - 2))
is "$(starts outlasts) $(starts leaves)" "1 1" "an outage of slurmctld: nothing is started again"
# In the long form slurmstepd, which tries to say that the ranks have ended once a minute only, adds to it.
if [[ -n ${BELLOWS_LONG:-} ]]; then
  hurts "$outlasts"
  kill -USR1 "$(pids_of "$outlasts" bellows 'bellows run' | head -n 1)"
  wanted='signal USR1'
else
  hurts "$outlasts"
  kill_one "$outlasts" counter .
  wanted='rank [01] on n1 was killed by signal 9'
fi
poll $((outage + 10)) since "$stopped" "$outage"
mc start-ctld
survives outlasts "$outlasts" "an outage of slurmctld for $outage s, and a fault meanwhile" "$wanted"

# A node that is drained: a job leaves it at a checkpoint, or stays where it asked to be.
host=$(host_of "$leaves")
hurts "$leaves"
xc --user root scontrol update nodename="n1,n$host" state=drain reason=test
survives leaves "$leaves" "a drained node" "drain of n$host"
isnt "$(host_of "$leaves")" "$host" "a drained node: the job has left it"
is "$(last_start leaves step) $(last_start leaves world)" \
  "$(log_of leaves | sed -n 's/^stop step=\([0-9]*\) .*/\1/p' | tail -n 1) 2" \
  "a drained node: at a checkpoint, and with its size"
stays() { grep -q 'stays, since it asks for that node' "$home/outlasts.out"; }
ok "a drained node: a job that asks for it stays" poll 40 stays
let_end outlasts "$outlasts" 250
let_end leaves "$leaves" 250
xc --user root scontrol update nodename="n1,n$host" state=resume
ends_well outlasts "$outlasts" "an outage of slurmctld"
ends_well leaves "$leaves" "a drained node"
poll 30 nodes_idle

# A node that is cut off, and returns; the third is kept for the job that has to move.
xc --user root scontrol update nodename=n3 state=drain reason=test
# shellcheck disable=SC2046
smaller=$(submit_counter smaller --no-kill --gpus-per-node=2 --nodes=2 -- $(count 100000))
poll 30 has_starts smaller 1
# shellcheck disable=SC2046
moves=$(submit_counter moves --gpus-per-node=2 --nodes=2 -- $(count 100000))
poll 40 commits_past "$smaller" 99 || bail "the job does not commit: $(out_of smaller | tail -n 5)"
poll 40 commits_past "$moves" 49 || bail "the job does not commit: $(out_of moves | tail -n 5)"
xc --user root scontrol update nodename=n3 state=resume
hurts "$smaller" "$moves"
mc cut-node 2
survives smaller "$smaller" "a cut network, with --no-kill" 'node n2 was lost; back to step'
is "$(last_start smaller world) $(job_field "$smaller" Restarts)" "$(gpus_held "$smaller" | cut -d' ' -f1) 0" \
  "it continues in place, with the GPUs that are left"
ok "fewer than before" test "$(last_start smaller world)" -lt 4
poll 40 commits_past "$smaller" "$(last_start smaller step)"
survives moves "$moves" "a cut network" 'node n2 was lost'
let_end moves "$moves" 250
mc heal-node 2
if [[ -n ${BELLOWS_LONG:-} ]]; then
  poll 60 node_is 2 'idle|mixed'
  ok "the job with --no-kill grows back" poll 120 has_starts smaller 3
  is "$(last_start smaller world)" 4 "to its size"
fi
let_end smaller "$smaller" 250
ends_well moves "$moves" "a cut network"
ends_well smaller "$smaller" "a cut network, with --no-kill"
done_testing

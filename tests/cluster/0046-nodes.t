#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# Failures around the ranks: memory limits, an outage of slurmctld, a drained node, a node that is cut
# off from two jobs, of which one was submitted with --no-kill. Nobody helps.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$(dirname "$0")/jobs.sh"

outage=12
[[ -z ${BELLOWS_LONG:-} ]] || outage=60
SLURM_LINES=$'SelectTypeParameters=CR_CPU_Memory\nDefMemPerCPU=100' impatient_cluster_up --nodes=3 --gpus=4
slurmd_timeout="SlurmdTimeout of 10 s and twice MessageTimeout of 5 s are part of it"
home=$CLUSTER/shared/home/alice
since() { (($(now_us) - $1 > $2 * 1000000)); } # MICROSECONDS SECONDS
count() { echo --steps "$1" --sleep-us 20000 --save-every 50; }
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

# A rank that takes more memory than the job may have.
sed -i 's/ConstrainRAMSpace=no/ConstrainRAMSpace=yes\nAllowedSwapSpace=0\nConstrainSwapSpace=yes/' "$CLUSTER/etc/cgroup.conf"
mc kill-node 3 && mc start-node 3
poll 60 node_is 3 idle
# shellcheck disable=SC2046
eats=$(submit_counter eats --gpus=2 --mem=400 --nodelist=n3 -- $(count 400) --eat 1000)
# The copies of what is saved: 160 MB of rows need 320 for them; 40 MB need 80.
misfit=$(submit_counter misfit --gpus=1 --mem=300 --nodelist=n3 --export=ALL,RUN_OPTIONS=--max-restarts=0 -- \
  --steps 10 --rows 20000000)
fits=$(submit_counter fits --gpus=1 --mem=400 --nodelist=n3 -- --steps 100000 --save-every 10 --rows 5000000)

# Training and saving go on without slurmctld; a stop waits for it.
# shellcheck disable=SC2046
outlasts=$(submit_counter outlasts --gpus=2 --nodelist=n1 -- $(count 100000))
poll 40 commits_past "$outlasts" 49 || bail "the job does not commit: $(out_of outlasts | tail -n 5)"
ok "a memory limit: the ranks are started again" poll 40 has_starts eats 2
like "$(causes "$eats")" 'rank 0 on n3 was killed .*memory' "a memory limit: the history names it and the rank"
ok "a memory limit: the job ends COMPLETED" poll 40 job_is "$eats" COMPLETED
like "$(log_of eats)" 'finish step=400 ' "a memory limit: with the right result"
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

mc stop-ctld
stopped=$(now_us)
before=$(committed "$outlasts")
ok "an outage of slurmctld: commits go on" poll 20 commits_past "$outlasts" $((before + 100))
[[ -z ${BELLOWS_LONG:-} ]] || kill -USR1 "$(pids_of "$outlasts" bellows 'bellows run' | head -n 1)"
poll $((outage + 10)) since "$stopped" "$outage"
is "$(starts outlasts)" 1 "an outage of slurmctld: nothing is started again"
mc start-ctld
if [[ -n ${BELLOWS_LONG:-} ]]; then
  # The ranks have ended meanwhile, and slurmstepd tries to say so once a minute only.
  began=$(now_us)
  ok "an outage of slurmctld: a stop that was asked for meanwhile is made" poll 100 has_starts outlasts 2
  took "an outage of slurmctld for $outage s, and a stop" "$began" "counted from its return; up to a minute is slurmstepd's"
  is "$(last_start outlasts step)" "$(log_of outlasts | sed -n 's/^stop step=\([0-9]*\) .*/\1/p' | tail -n 1)" \
    "an outage of slurmctld: nothing is lost"
fi

# A node that is drained: a job leaves it at a checkpoint.
xc --user root scontrol update nodename=n1 state=drain reason=test
stays() { grep -q 'stays, since it asks for that node' "$home/outlasts.out"; }
ok "a drained node: a job that asks for it stays" poll 40 stays
xc --user root scontrol update nodename=n1 state=resume
xc scancel "$outlasts"
# shellcheck disable=SC2046
leaves=$(submit_counter leaves --gpus=2 -- $(count 100000))
poll 40 commits_past "$leaves" 49
host=$(host_of "$leaves")
xc --user root scontrol update nodename="n$host" state=drain reason=test
began=$(now_us)
ok "a drained node: the job goes on elsewhere" poll 60 has_starts leaves 2
took "a drained node" "$began" "up to 15 s until the launcher looks, and the requeue"
isnt "$(host_of "$leaves")" "$host" "a drained node: it has left the node"
is "$(last_start leaves step) $(last_start leaves world)" \
  "$(log_of leaves | sed -n 's/^stop step=\([0-9]*\) .*/\1/p' | tail -n 1) 2" \
  "a drained node: at a checkpoint, and with its size"
like "$(causes "$leaves")" "drain of n$host" "a drained node: the history names it"
xc --user root scontrol update nodename="n$host" state=resume
xc scancel "$leaves"
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
before=$(committed "$smaller")
xc --user root scontrol update nodename=n3 state=resume
mc cut-node 2
began=$(now_us)
ok "a cut network: a job with --no-kill goes on smaller, in place" poll 90 has_starts smaller 2
took "a cut network, with --no-kill" "$began" "$slurmd_timeout"
is "$(last_start smaller world) $(job_field "$smaller" Restarts)" "$(gpus_held "$smaller" | cut -d' ' -f1) 0" "with the GPUs that are left"
ok "fewer than before" test "$(last_start smaller world)" -lt 4
ok "from what was committed" test "$(last_start smaller step)" -ge "$before"
like "$(causes "$smaller")" 'node n2 was lost; back to step' "and the history says why"
poll 40 commits_past "$smaller" "$(last_start smaller step)"
ok "a cut network: a job without is requeued and goes on" poll 60 has_starts moves 2
took "a cut network" "$began" "$slurmd_timeout"
like "$(causes "$moves")" 'node n2 was lost' "and the history says why"
mc heal-node 2
if [[ -n ${BELLOWS_LONG:-} ]]; then
  poll 60 node_is 2 'idle|mixed'
  ok "the job with --no-kill grows back" poll 120 has_starts smaller 3
  is "$(last_start smaller world)" 4 "to its size"
fi
xc scancel "$smaller" "$moves"
done_testing

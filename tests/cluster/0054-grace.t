#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Slurm takes a job's nodes away or its time is over: it stops by itself in the time that it has, goes on
# from there, and its history tells why.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$(dirname "$0")/jobs.sh"

# A second number: how far past the last periodic save (every 100000 steps: none) a job stopped.
stop_of() { log_of "$1" | sed -n 's/^stop step=\([0-9]*\) .*/\1/p' | tail -n 1; }
cause_is() { events_of "$1" | grep -q "\"event\":\"$2\",\"cause\":\"$3\""; }
# went_on ID NAME CAUSE WHAT
went_on() {
  poll 60 has_starts "$2" 2 || { fail "$4: the job goes on" "$(out_of "$2" | tail -n 8)"; return; }
  is "$(last_start "$2" step)" "$(stop_of "$2")" "$4: it saves first, and goes on from there"
  ok "$4: the history tells the cause" cause_is "$1" QUEUED "$3"
}
ends_well() { # ID NAME STEPS WHAT
  poll 90 job_is "$1" COMPLETED
  is "$(job_field "$1" JobState) $(log_of "$2" | grep -c "^finish step=$3 ")" "COMPLETED 1" "$4"
}

conf=$(mktemp)
cat >"$conf" <<'C'
AuthInfo=cred_expire=10
MessageTimeout=5
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=n[1-3] PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
PartitionName=none Nodes=n[1-3] PriorityTier=1 PreemptMode=REQUEUE
PartitionName=high Nodes=n[1-3] PriorityTier=10 PreemptMode=OFF
C
cluster_up --nodes=3 --gpus=4 --slurm-conf "$conf"
home=$CLUSTER/shared/home/alice

# All its saves are those of stops; the time limit of a minute comes by itself meanwhile.
limited=$(submit_counter limited --gpus=1 --partition=high --nodelist=n3 --time=1 -- --steps 4000 --sleep-us 20000 --save-every 100000)

preempted=$(submit_counter preempted --gpus=4 --partition=low --nodelist=n1 -- --steps 2000 --sleep-us 20000 --save-every 100000)
poll 30 has_starts preempted 1
poll 10 grep -q '"event":"PROCESSING"' "$(checkpoints "$preempted")/events.jsonl"
urgent=$(submit -- --partition=high --gpus=4 --nodelist=n1 --wrap='sleep 3')
went_on "$preempted" preempted preemption "a preemption with a grace time"
poll 20 job_is "$urgent" COMPLETED
unlike "$(events_of "$preempted")" 'the step of ranks' "nobody dies of its announcement"

# To the steps, as scancel does when it is not told otherwise.
before=$(starts preempted)
xc scancel --signal=USR1 "$preempted"
ok "scancel --signal=USR1 stops it at a checkpoint" poll 40 has_starts preempted $((before + 1))
is "$(last_start preempted step)" "$(stop_of preempted)" "from which it goes on"
ok "and the history tells the cause" cause_is "$preempted" QUEUED 'signal USR1'
# Without a grace time Slurm ends the ranks at once: what was committed is what there is.
sudden=$(submit_counter sudden --gpus=4 --partition=none --nodelist=n2 -- --steps 2000 --sleep-us 20000 --save-every 50)
poll 30 commits_past "$sudden" 99
before=$(committed "$sudden")
urgent=$(submit -- --partition=high --gpus=4 --nodelist=n2 --wrap='sleep 3')
poll 60 has_starts sudden 2 || diag "$(xc --user root squeue); $(out_of sudden | tail -n 5); $(xc --user root scontrol show job "$sudden" | grep -E "JobState|StartTime|Preempt"); $(tail -n 6 "$CLUSTER/log/slurmctld.log")"
ok "a preemption without: on from what was committed" test "$(last_start sudden step)" -ge "$before"
ok "and the history tells the cause" cause_is "$sudden" QUEUED preemption
like "$(out_of sudden)" 'but Slurm gives a preempted job here 0 s' "that it is too short was said"
unlike "$(out_of preempted)" 'but Slurm gives' "and only where it is"

poll 20 commits_past "$sudden" "$(last_start sudden step)"
# By an operator.
before=$(committed "$sudden")
runs=$(starts sudden)
xc --user root scontrol requeue "$sudden"
poll 40 has_starts sudden $((runs + 1))
ok "scontrol requeue: on from what was committed" test "$(last_start sudden step)" -ge "$before"
ok "and the history tells the cause" cause_is "$sudden" QUEUED 'requeued by Slurm or an operator'
ok "the time limit: it stops before that" poll 60 has_starts limited 2
ok "and the history tells the cause" cause_is "$limited" QUEUED 'time limit'
like "$(out_of limited)" 'the time limit comes in [0-9]+ s, and to stop may take' "and so does its output"
is "$(last_start limited step)" "$(stop_of limited)" "it goes on from the step at which it stopped"

ends_well "$preempted" preempted 2000 "the preempted job comes to its end"
ends_well "$sudden" sudden 2000 "so does the one without a grace time"
xc scancel "$limited"
rm -f "$conf"

# By QOS, which Slurm keeps in its database.
conf=$(mktemp)
printf 'AuthInfo=cred_expire=10\nPreemptType=preempt/qos\nPreemptMode=REQUEUE\nKillWait=5\n' >"$conf"
cluster_up --nodes=1 --gpus=4 --accounting --slurm-conf "$conf"
rm -f "$conf"
sacctmgr() { xc --user root sacctmgr --immediate "$@"; }
sacctmgr add qos low GraceTime=30 PreemptMode=requeue >/dev/null
sacctmgr add qos high Preempt=low Priority=100 >/dev/null
sacctmgr modify account vision set qos+=low,high >/dev/null
low=$(submit_counter low --gpus-range=1-4 --gpus=4 --qos=low -- --steps 300 --sleep-us 20000 --save-every 100000)
poll 40 has_starts low 1
urgent=$(submit -- --qos=high --gpus=4 --wrap='sleep 3')
went_on "$low" low preemption "a preemption by QOS"
ends_well "$low" low 300 "it comes to its end"
done_testing

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Slurm takes a job's nodes away or its time is over: it stops by itself in the time that it has, goes on
# from there, and its history tells why.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

# A second number: how far past the last periodic save (every 100000 steps: none) a job stopped.
stop_of() { log_of "$1" | sed -n 's/^stop step=\([0-9]*\) .*/\1/p' | tail -n 1; }
cause_is() { events_of "$1" | grep -q "\"event\":\"$2\",\"cause\":\"$3\""; }
# A job that Slurm let stop has saved first: went_on NAME ID WHAT CAUSE
went_on() {
  survives "$@"
  is "$(last_start "$1" step)" "$(stop_of "$1")" "$3: it saves first, and continues from there"
  ok "$3: the launcher has told why it was queued" cause_is "$2" QUEUED "$4"
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

# All its saves are those of stops; the time limit of a minute comes near by itself before its end.
limited=$(submit_counter limited --gpus=1 --partition=high --nodelist=n3 --time=1 -- --steps 2000 --sleep-us 20000 --save-every 100000)

preempted=$(submit_counter preempted --gpus=4 --partition=low --nodelist=n1 -- --steps 1200 --sleep-us 20000 --save-every 100000)
# Without a grace time Slurm ends the ranks at once: what was committed is what there is.
sudden=$(submit_counter sudden --gpus=4 --partition=none --nodelist=n2 -- --steps 1200 --sleep-us 20000 --save-every 50)
poll 30 has_starts preempted 1
poll 10 grep -q '"event":"PROCESSING"' "$(checkpoints "$preempted")/events.jsonl"
hurts "$preempted"
urgent=$(submit -- --partition=high --gpus=4 --nodelist=n1 --wrap='sleep 3')
poll 30 commits_past "$sudden" 99
hurts "$sudden"
submit -- --partition=high --gpus=4 --nodelist=n2 --wrap='sleep 3' >/dev/null
went_on preempted "$preempted" "a preemption with a grace time" preemption
poll 20 job_is "$urgent" COMPLETED
unlike "$(events_of "$preempted")" 'the step of ranks' "nobody dies of its announcement"

# To the steps, as scancel does when it is not told otherwise.
hurts "$preempted"
xc scancel --signal=USR1 "$preempted"
survives sudden "$sudden" "a preemption without" preemption
like "$(out_of sudden)" 'but Slurm gives a preempted job here 0 s' "that it is too short was said"
unlike "$(out_of preempted)" 'but Slurm gives' "and only where it is"
poll 20 commits_past "$sudden" "$(last_start sudden step)"
# By an operator.
hurts "$sudden"
xc --user root scontrol requeue "$sudden"
went_on preempted "$preempted" "scancel --signal=USR1" 'signal USR1'
survives sudden "$sudden" "scontrol requeue" 'requeued by Slurm or an operator'
ends_well preempted "$preempted" "the preempted job"
ends_well sudden "$sudden" "the one without a grace time"

poll 60 grep -q 'the time limit is reached in' "$CLUSTER/shared/home/alice/limited.out"
like "$(out_of limited)" 'the time limit is reached in [0-9]+ s, and a stop may take' "the time limit: its output tells that it is near"
# Before that nothing was committed; the fault is then.
hurt_step[$limited]=0
hurt_at[$limited]=$(events_of "$limited" | sed -n '/"CHECKPOINTING"/ s/.*"time":\([0-9]*\)\.\([0-9]*\).*/\1 \2/p' |
  head -n 1 | awk '{ printf "%d%s", $1, substr($2 "000000", 1, 6) }')
ends_well limited "$limited" "the time limit"
went_on limited "$limited" "the time limit" 'time limit'

# By QOS, which Slurm keeps in its database.
printf 'AuthInfo=cred_expire=10\nPreemptType=preempt/qos\nPreemptMode=REQUEUE\nKillWait=5\n' >"$conf"
cluster_up --nodes=1 --gpus=4 --accounting --slurm-conf "$conf"
rm -f "$conf"
sacctmgr() { xc --user root sacctmgr --immediate "$@"; }
sacctmgr add qos low GraceTime=30 PreemptMode=requeue >/dev/null
sacctmgr add qos high Preempt=low Priority=100 >/dev/null
sacctmgr modify account vision set qos+=low,high >/dev/null
low=$(submit_counter low --gpus-range=1-4 --gpus=4 --qos=low -- --steps 300 --sleep-us 20000 --save-every 100000)
poll 40 has_starts low 1
hurts "$low"
submit -- --qos=high --gpus=4 --wrap='sleep 3' >/dev/null
went_on low "$low" "a preemption by QOS" preemption
ends_well low "$low" "a preemption by QOS"
# Of a QOS that none may preempt.
calm=$(submit_counter calm --gpus-range=1-4 --gpus=1 --qos=high -- --steps 200 --sleep-us 20000 --save-every 20)
ends_well calm "$calm" "a job that nobody may preempt"
unlike "$(out_of calm)" 'but Slurm gives' "and is not warned of a preemption"
done_testing

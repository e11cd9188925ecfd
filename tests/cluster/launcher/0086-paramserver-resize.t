#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# A job of kind ps goes on from its checkpoint: after resizes, a preemption, and whatever is killed. Each of
# its gradients is there once in the end, whoever had to push it again.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

program=$build/tests/cluster/programs/ps_resume
[[ -x $program ]] || skip_all "$program is not built"
SLURM_LINES='PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=n[1-2] PriorityTier=1 PreemptMode=REQUEUE GraceTime=30 Default=YES
PartitionName=high Nodes=n[1-2] PriorityTier=10 PreemptMode=OFF' impatient_cluster_up --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice
shm=$(ls /dev/shm)

# learn NAME COUNT "OPTIONS OF bellows run" OPTION-OF-SBATCH...: it ends after let_all_end NAME.
learn() {
  local name=$1 count=$2 how=$3
  shift 3
  printf '#!/bin/bash\nexec bellows run --kind=ps --ps-threads=2 %s -- %s %s 3000 %s/%s.end\n' \
    "$how" "$program" "$count" "$home" "$name" >"$home/$name.sh"
  submit -- --framework=digits --gpus-range=1-4 --nodes=1 --job-name="$name" --output="$home/$name.out" "$@" "$name.sh"
}
let_all_end() { touch "$home/$1.end"; }
# The newest start: how many learners, and how many gradients they found.
begun() { out_of "$1" | sed -n 's/.*learner [0-9]* of \([0-9]*\) begins with \([0-9]*\)/\1 \2/p'; }
has_begun() { (($(begun "$1" | wc -l) >= $2)); } # NAME LEARNERS
is_exact() { # NAME JOB LEARNERS WHAT
  let_all_end "$1"
  poll 60 job_is "$2" '(COMPLETED|FAILED)'
  like "$(job_field "$2" JobState) $(out_of "$1" | grep -o 'ledger .*' | tail -n 1)" \
    "^COMPLETED ledger exact: [0-9]+ gradients, $3 learners" "$4" || diag "$(out_of "$1" | tail -n 30)"
}
nobody_left() { [[ -z $(pids_of "$1" 'ps_resume|bellows-ps|ps-guard' .) ]]; } # JOB

# Resizes go through a checkpoint of the very moment: nothing is lost.
id=$(learn sizes 3000 --ps-checkpoint-every=0 --gpus=2)
poll 30 has_begun sizes 2
poll 20 commits_past "$id" -1
resized() { # TO LEARNERS-SO-FAR
  local before
  before=$(begun sizes | tail -n 1)
  xc bellows resize --timeout 60 "$id" "$1" >"$home/report" 2>&1 || { cat "$home/report"; return 1; }
  poll 40 has_begun sizes $(($2 + $1)) || return 1
  local found step
  found=$(begun sizes | tail -n "$1" | sort -n -k 2 | head -n 1)
  step=$(out_of sizes | sed -n 's/.*goes on from the checkpoint of update \([0-9]*\).*/\1/p' | tail -n 1)
  [[ ${found% *} == "$1" && ${found#* } -ge $step && $step -gt ${before#* } ]] ||
    { echo "$found after $before, from $step"; return 1; }
}
ok "a resize to 4 learners goes on from where all was" resized 4 2
ok "and one to 1" resized 1 6
is_exact sizes "$id" 1 "each gradient is there once after both"
ok "and nobody is left" poll 10 nobody_left "$id"

# A preemption with a grace time, which Slurm announces to bellows-ps: the learners train on until it has saved.
id=$(learn preempted 2000 --ps-checkpoint-every=0 --gpus=4 --partition=low --nodelist=n1)
poll 30 has_begun preempted 4
poll 10 grep -q '"event":"PROCESSING"' "$(checkpoints "$id")/events.jsonl"
urgent=$(submit -- --partition=high --gpus=4 --nodelist=n1 --wrap='sleep 3')
poll 60 has_begun preempted 8
saved=$(out_of preempted | sed -n 's/.*goes on from the checkpoint of update \([0-9]*\).*/\1/p' | tail -n 1)
ok "a preempted job saves first, and goes on from there" test "${saved:-0}" -gt 0
is_exact preempted "$id" 4 "and each gradient is there once"
poll 20 job_is "$urgent" COMPLETED

# One whose learners push nothing: their last gradients wait for let_all_end.
id=$(learn idle 40 --ps-checkpoint-every=0 --gpus=2)
poll 30 has_begun idle 2
is_idle() { xc bellows status --json "$id" | tr -d ' \n' | grep -q '"updates":38,'; }
poll 30 is_idle || diag "$(xc bellows status --json "$id")"
ok "a job in which no update comes is resized" xc bellows resize --timeout 60 "$id" 1
is_exact idle "$id" 1 "and each gradient is there once"

# What dies without a word goes on from the last checkpoint.
dies() { # NAME WHAT REGEX-OF-CAUSE COMMAND...
  local name=$1 what=$2 cause=$3 id
  shift 3
  id=$(learn "$name" 2000 --ps-checkpoint-every=1 --gpus=2 --nodelist=n2)
  poll 30 has_begun "$name" 2
  poll 20 commits_past "$id" 0
  "$@" "$id" || fail "$what" "the fault could not be done"
  poll 90 has_begun "$name" 4
  like "$(out_of "$name")" 'goes on from the checkpoint of update [1-9]' "$what: it goes on from a checkpoint"
  is_exact "$name" "$id" 2 "$what: each gradient is there once"
  like "$(events_of "$id")" "$cause" "$what: the history says so"
  ok "$what: nobody is left" poll 10 nobody_left "$id"
}
kills() { kill_one "$3" "$1" "$2"; }
loses_node() { mc kill-node 2 && mc start-node 2; }
dies rank "kill -9 of bellows-ps" 'rank 0 on n2 was killed by signal 9' kills bellows-ps .
dies agent "kill -9 of the agent" 'the agent on n2 was killed by signal 9' kills bellows 'bellows agent'
dies launcher "kill -9 of the launcher" '"cause":"requeued"' kills bellows 'bellows run'
dies node "a killed node" 'requeued|node n2 was lost' loses_node

# Other tests come and go there, too.
is "$(comm -13 <(printf '%s\n' "$shm") <(ls /dev/shm) | grep bellows)" "" "nothing is left in /dev/shm"
done_testing

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Job arrays: commands know their tasks by name, and refuse the array's own id, which is a task's too.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

cluster_up --nodes=2 --gpus=4 --accounting
home=$CLUSTER/shared/home/alice
export TAP_LIMIT=120

# shellcheck disable=SC2016
printf '#!/bin/bash\nexec bellows run'"$run_kind"' -- %s --log %s.$SLURM_ARRAY_TASK_ID.log --steps 1000000 --sleep-us 10000 --save-every 50\n' \
  "$counter" "$home/task" >"$home/task.sh"
array=$(submit -- --framework=digits --gpus-range=1-4 --gpus=1 --array=1-3 --output="$home/task.%a.out" task.sh)
raw() { xc squeue --noheader --array --format='%i %A' | sed -n "s/^${array}_$1 //p"; } # TASK
runs() { [[ $(xc squeue --noheader --array --states=running --format=%i | grep -c "^${array}_") == 3 ]]; }
commits() { (($(committed "$(raw "$1")") > 0)); } # TASK
poll 40 runs || bail "the tasks do not run"
poll 40 commits 1 && poll 40 commits 2 && poll 40 commits 3
restarts() { for task in 1 2 3; do job_field "${array}_$task" Restarts; done | xargs; }

all="$array is a job array; name one of its tasks: ${array}_1, ${array}_2, ${array}_3"
for words in "resize $array 2" "halt $array" "resume $array"; do
  # shellcheck disable=SC2086
  said=$(xc bellows $words 2>&1)
  is "$? $said" "3 bellows ${words%% *}: $all" "bellows ${words%% *} refuses the array's id and names its tasks"
done
for words in "status $array" "history $array" "logs $array" "ckpt list $array"; do
  # shellcheck disable=SC2086
  said=$(xc bellows $words 2>&1)
  like "$? $said" "^[12] bellows [a-z ]*: $all" "bellows ${words%% *} does too"
done
is "$(restarts)" "0 0 0" "no task was stopped"

said=$(xc bellows resize --timeout 100 "${array}_2" 2 2>&1)
like "$? $said" "^0 .*job ${array}_2: 1 -> 2 GPUs" "a task is resized by its name, and so is the answer"
is "$(restarts)" "0 1 0" "that one and no other"
number=$(raw 1)
isnt "$number" "$array" "a task that has a number of its own"
like "$(xc bellows resize "$number" 1 2>&1)" "^job $number already has 1 GPU" "can be named by that, too"
like "$(xc bellows resize --json "${array}_3" 1)" "\"id\":\"${array}_3\"" "as JSON both are given"
like "$(xc bellows halt "${array}_3" 2>&1)" "job ${array}_3 is halted at step [0-9]+; 'bellows resume ${array}_3' continues it" \
  "what is halted can be resumed by the same name"
like "$(xc bellows resize "${array}_7" 2 2>&1)" "there is no job ${array}_7" "a task that the array does not have is unknown"

xc scancel "$array"
cancelled() { ! xc squeue --noheader --format=%i | grep -q "^$array"; }
poll 40 cancelled
like "$(xc bellows history "$array" 2>&1)" "$array is a job array; name one of its tasks: ${array}_" \
  "nor does an array that is over pass for a job"
like "$(xc bellows history "${array}_2" 2>&1)" 'CANCELLED' "of which each task has its history"

# A job without a launcher: its sentence, and nothing of srun.
printf '#!/bin/bash\nsleep 100\n' >"$home/bare.sh"
bare=$(submit -- --framework=digits --gpus-range=1-4 --gpus=1 bare.sh)
poll 30 job_is "$bare" RUNNING
said=$(xc bellows halt "$bare" 2>&1 | grep -v 'trying again')
is "$said" "bellows halt: job $bare has no launcher that answers (is its script running 'exec bellows run'?); nothing was changed" \
  "a job without a launcher is told of in one sentence"

done_testing

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# bellows run: layout, end, failure, stop and resume; bellows status and the commands' refusals.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice

# A job from start to end.
id=$(submit_counter whole --gpus=2 -- --steps 60 --sleep-us 10000 --save-every 20)
poll 40 job_is "$id" COMPLETED
is "$(job_field "$id" JobState)" COMPLETED "a job runs to its end"
is "$(last_start whole world)" 2 "with one rank for each GPU"
like "$(log_of whole)" 'finish step=60' "and all its steps"
is "$(committed "$id")" 40 "its checkpoints are there"
is "$(events_of "$id" | sed 's/.*"event":"\([A-Z]*\)".*/\1/' | uniq | xargs)" \
  "QUEUED DEPLOYING PROCESSING CHECKPOINTING PROCESSING COMPLETED" "and so is its history"
unlike "$(out_of whole)" 'not the batch script itself' "exec is noticed"

# GPUs that lie unevenly, and a program that does not know libbellows.
plain=$(submit -- --gpus=1 --nodelist=n1 --wrap='sleep 60')
poll 20 job_is "$plain" RUNNING
cat >"$home/uneven.sh" <<S
#!/bin/bash
bellows run$run_kind -- bash -c 'echo "rank \$SLURM_PROCID of \$SLURM_NTASKS on \$SLURMD_NODENAME: \$SLURM_LOCALID of \$CUDA_VISIBLE_DEVICES"'
S
id=$(submit -- --framework=digits --gpus-range=7 --output="$home/uneven.out" uneven.sh)
poll 40 job_is "$id" COMPLETED
# Each rank of kind plain sees its own alone.
wanted=$(for i in 0 1 2; do echo "of 7 on n1: $i of ${run_kind:+$i}${has_pmix:+0,1,2}"; done
  for i in 0 1 2 3; do echo "of 7 on n2: $i of ${run_kind:+$i}${has_pmix:+0,1,2,3}"; done)
is "$(out_of uneven | sed -n 's/^rank [0-9]* //p' | sort)" "$wanted" "ranks go where the GPUs are"
like "$(out_of uneven)" 'did not use libbellows' "a program without libbellows is told what is missing"
like "$(out_of uneven)" 'not the batch script itself' "and so is a script without exec"
xc scancel "$plain"

# A job that has nothing of Bellows but the command.
id=$(submit -- --output="$home/bare.out" --wrap "exec bellows run$run_kind -- sh -c 'echo it runs'")
poll 40 job_is "$id" COMPLETED
is "$(job_field "$id" JobState)" COMPLETED "bellows run needs no contract"
like "$(out_of bare)" 'it runs' "for a program without GPUs"
unlike "$(job_field "$id" AdminComment)" bellows/1 "and the job has none"

# A program that always fails, and says why on its standard error.
id=$(submit_counter failing --gpus=1 --export=ALL,RUN_OPTIONS=--max-restarts=1 -- --exit 7)
poll 40 job_is "$id" FAILED
is "$(job_field "$id" ExitCode)" 7:0 "a job that keeps failing ends with its ranks' status"
is "$(starts failing)" 2 "after the restarts it was given"
like "$(out_of failing | tail -n 1)" \
  'giving up: rank 0 on n[12] exited with status 7; 2 failures in a row without progress; its last output: counter: told to end with status 7$' \
  "and says why, with the program's own last words"
is "$(job_field "$id" Restarts)" 0 "without a requeue"

# An old checkpoint that cannot be removed costs room and nothing else.
id=$(submit_counter clinging --gpus=1 --export=ALL,RUN_OPTIONS=--keep=1 -- --steps 300 --sleep-us 10000 --save-every 50)
cling() { mkdir -p "$(readlink -e "$(checkpoints "$id")/latest")/root/only" && chmod -R go-rwx "$(checkpoints "$id")"/step-*/root; }
poll 30 commits_past "$id" 49
poll 10 cling
poll 40 job_is "$id" COMPLETED
is "$(starts clinging) $(committed "$id")" "1 250" "a checkpoint that cannot be removed does not stop the job"
like "$(out_of clinging)" 'agent on n[12]: cannot remove' "and is told"

# A directory is one job's as long as that job is not over.
id=$(submit_counter owner --gpus=1 --export=ALL,RUN_OPTIONS=--checkpoint-dir=mine -- --steps 100000 --sleep-us 10000 --save-every 20)
poll 30 test -e "$home/mine/latest"
second=$(submit_counter guest --gpus=1 --export=ALL,RUN_OPTIONS=--checkpoint-dir=mine -- --steps 100)
poll 40 job_is "$second" FAILED
is "$(job_field "$second" ExitCode) $(starts guest)" "3:0 0" "a second job in the same checkpoint directory does not start"
like "$(out_of guest)" "mine belongs to job $id, which is not over" "and is told whose it is"
is "$(starts owner)" 1 "the first is not disturbed"
xc scancel "$id"
poll 30 job_is "$id" CANCELLED
second=$(submit_counter heir --gpus=1 --export=ALL,RUN_OPTIONS=--checkpoint-dir=mine -- --steps 100)
poll 40 job_is "$second" COMPLETED
isnt "$(last_start heir step)" 0 "a later one continues from there"
id=$(submit_counter barred --gpus=1 --export=ALL,RUN_OPTIONS=--checkpoint-dir=/etc -- --steps 100)
poll 40 job_is "$id" FAILED
like "$(out_of barred)" 'cannot write to the checkpoint directory /etc: Permission denied; name one' \
  "a directory that cannot be written is named"

# Stopped by a signal, as before a time limit or a preemption; nobody is there to help. The second one
# comes while it saves.
id=$(submit_counter stopped --gpus=3 -- --steps 500 --sleep-us 10000 --save-every 40 --rows 2000000)
poll 30 commits_past "$id" 39
like "$(xc bellows status)" "$id stopped +(PROCESSING|CHECKPOINTING) +3 1-8 +0" "status shows the job"
xc bash -c 'scancel --signal=USR1 --batch "$1"; scancel --signal=USR1 --batch "$1"' - "$id"
poll 60 has_starts stopped 2
is "$(last_start stopped step)" "$(log_of stopped | sed -n 's/^stop step=\([0-9]*\) .*/\1/p')" \
  "a signal stops the job at a checkpoint, and it continues from there by itself"
is "$(last_start stopped world)" 3 "at its size"
ends_well stopped "$id" "a stopped job"
is "$(job_field "$id" Restarts) $(log_of stopped | grep -c '^stop ') $(out_of stopped | grep -c 'signal USR1: stopping') $(
  out_of stopped | grep -c 'all ranks stop at step')" "1 1 1 1" "through one requeue: a second signal changes nothing"

# Refusals: nothing is changed.
id=$(submit_counter long --gpus=2 -- --steps 100000 --sleep-us 10000 --save-every 50)
poll 30 has_starts long 1
exits "run outside a job" 3 xc bellows run -- true
exits "no subcommand" 2 xc bellows
exits "a subcommand that does not exist" 2 xc bellows grow
exits "resize without a size" 2 xc bellows resize "$id"
exits "resize to a word" 2 xc bellows resize "$id" many
exits "resize to nothing" 2 xc bellows resize "$id" 0
exits "resize beyond the range" 3 xc bellows resize "$id" 9
exits "resize of another user's job" 3 xc --user bob bellows resize "$id" 4
exits "resize of a job with no such name" 2 xc bellows resize "${id}_x" 4
exits "resize of a job that does not exist" 3 xc bellows resize 99999 4
plain=$(submit -- --gpus=1 --wrap='sleep 60')
poll 20 job_is "$plain" RUNNING
exits "resize of a job without a contract" 3 xc bellows resize "$plain" 2
printf '#!/bin/bash\nsleep 60\n' >"$home/idle.sh"
idle=$(submit -- --framework=digits --gpus-range=1-8 --gpus=1 idle.sh)
poll 20 job_is "$idle" RUNNING
exits "resize of a job without a launcher" 4 xc bellows resize "$idle" 2
is "$(job_field "$idle" JobState) $(job_field "$idle" Restarts)" "RUNNING 0" "which continues"
exits "status of a job that does not exist" 1 xc bellows status 99999
is "$(gpus_held "$id") $(job_field "$id" Restarts) $(starts long)" "2 1 0 1" "nothing was changed"
ok "status as JSON" python3 -c 'import json, sys
job = [j for j in json.loads(sys.argv[1]) if j["job"] == int(sys.argv[2])][0]
assert job["gpus"] == 2 and job["range"] == "1-8" and job["user"] == "alice", job' \
  "$(xc bellows status --json)" "$id"
waiting=$(submit_counter waiting --gpus=8 -- --steps 10)
ok "a waiting job is just asked for less" xc bellows resize "$waiting" 7
like "$(job_field "$waiting" TresPerJob)" 'gpu:7' "and Slurm knows"
ok "root may ask too" xc --user root bellows resize "$waiting" 6
like "$(job_field "$waiting" TresPerJob)" 'gpu:6' "and Slurm knows"
xc scancel "$waiting"
array=$(submit_counter task --gpus=1 --array=4 -- --steps 100000 --sleep-us 10000)
poll 30 has_starts task 1
like "$(xc bellows status "${array}_4")" "${array}_4 task +PROCESSING +1 " "a task of a job array is named as by squeue"
ok "by resize too" xc bellows resize "${array}_4" 1
exits "a task that does not exist" 3 xc bellows resize "${array}_9" 7
xc scancel "$array"

# Without an answer from slurmctld nobody acts.
before=$(starts long)
mc stop-ctld
exits "no slurmctld" 4 xc bellows resize "$id" 4
pid=$(pids_of "$id" counter . | tail -n 1)
kill -KILL "$pid"
mc start-ctld
poll 40 has_starts long $((before + 1))
is "$(starts long) $(job_field "$id" Restarts)" "$((before + 1)) 0" \
  "a rank that dies meanwhile is restarted in place when slurmctld answers again"
xc scancel "$id"
poll 30 job_is "$id" CANCELLED
like "$(events_of "$id" | tail -n 1)" '"event":"CANCELLED"' "scancel is recorded as such"

ok "the example configuration is good" xc bellows check-config "$CLUSTER/etc/bellows.yaml"
echo 'version: 2' >"$home/bad.yaml"
exits "a wrong one is not" 1 xc bellows check-config bad.yaml
done_testing

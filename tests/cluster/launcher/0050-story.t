#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# The true story of a job, and the commands to hear and steer it: history, logs, halt, resume.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

# states ID: the timeline, a word for each line, with a star where Slurm alone saw it.
states() {
  xc bellows history --json "$1" 2>/dev/null | python3 -c 'import json, sys
last = None
for line in json.load(sys.stdin)["timeline"]:
    word = line["state"] + ("*" if line["source"] == "slurm" else "")
    if word != last: print(word, end=" ")
    last = word'
}
# told ID EXPRESSION: of the history, as h
told() { xc bellows history --json "$1" 2>/dev/null | python3 -c 'import json, sys
h = json.load(sys.stdin)
print('"$2"')'; }
state_is() { [[ $(xc bellows status --json "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["state"])') == "$2" ]]; }
in_file() { grep -q -- "$2" "$1"; }

impatient_cluster_up --nodes=2 --gpus=4 --accounting
home=$CLUSTER/shared/home/alice

# A program that says which rank it is, then counts.
cat >"$home/talk.sh" <<S
#!/bin/bash
echo "hello from \$SLURM_PROCID"
echo "trouble of \$SLURM_PROCID" >&2
exec $counter --log $home/talk.log --steps 100000 --sleep-us 10000 --save-every 20
S
chmod +x "$home/talk.sh"
printf '#!/bin/bash\nexec bellows run'"$run_kind"' --checkpoint-dir %s/mine -- %s/talk.sh\n' "$home" "$home" >"$home/job.sh"
id=$(submit -- --framework=digits --gpus-range=1-8 --gpus=2 --job-name=talk --output="$home/talk.out" job.sh)
poll 40 in_file "$home/mine/events.jsonl" 'committed step'
is "$(sed 's/^[^:]*: //' "$home/talk.out" | grep -c '^hello from [01]$')" 2 "the job's own output is as it was"
unlike "$(out_of talk)" '^ *[0-9]+: ' "without labels"
is "$(xc bellows status --json "$id" | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["last_event"] is not None)')" \
  True "status finds a directory that was named to run"
xc bellows logs -f "$id" >"$home/follow" 2>&1 &
follow=$!

# complete WORD...: what bash would offer for the last word.
complete_words() {
  xc bash -c '. <(bellows completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bellows; echo "${COMPREPLY[*]}"' - "$@"
}
is "$(complete_words bellows res)" "resize resume" "commands are completed"
is "$(complete_words bellows ckpt l)" "list" "and those below them"
is "$(complete_words bellows resize --ti)" "--timeout" "and options"
is "$(complete_words bellows run --kind "")" "mpi nccl torch plain ps" "and the values of an option that has a few"
is "$(complete_words bellows run --kind =)" "mpi nccl torch plain ps" "also after ="
is "$(complete_words bellows run --kind = t)" "torch" "which begin with what was typed"
is "$(complete_words bellows logs "")" "$id" "and job ids"

# Over a resize, and for one rank.
ok "a resize" xc bellows resize "$id" 3
poll 30 has_starts talk 2
poll 30 in_file "$home/follow" 'attempt 1.1'
poll 30 in_file "$home/follow" ' 2| hello from 2'
ok "logs -f continues over a requeue" grep -q ' 1| hello from 1' "$home/follow"
like "$(xc bellows logs --rank 1 "$id" | grep -v '^==>' | sed 's/^[^ ]* *//' | sort | uniq -c | xargs)" \
  '2 1! trouble of 1 2 1[|] hello from 1' "logs of one rank have both attempts and both streams"
is "$(xc bellows logs --attempt 1.1 --json "$id" | python3 -c 'import json, sys
lines = [json.loads(l) for l in sys.stdin]
assert all(l["restart"] == 1 and l["attempt"] == 1 for l in lines)
print(sorted(l["text"] for l in lines if l["stream"] == "out" and l["text"].startswith("hello")))')" \
  "['hello from 0', 'hello from 1', 'hello from 2']" "logs of one attempt, as JSON"
is "$(xc bellows logs --since 2999-01-01 "$id")" "" "logs since the future are empty"
exits "logs since no time" 2 xc bellows logs --since whenever "$id"
exits "of no rank" 2 xc bellows logs --rank x "$id"

# Halt and resume.
exits "halt of another user's job" 3 xc --user bob bellows halt "$id"
exits "resume of a job that runs" 3 xc bellows resume "$id"
poll 20 in_file "$home/mine/events.jsonl" '"restart":1.*committed step'
halted=$(xc bellows halt --json "$id" 2>/dev/null)
step=$(sed -n 's/.*"step":\([0-9]*\).*/\1/p' <<<"$halted")
like "$halted" '"unchanged":false,"step":[1-9]' "halt stops the job at a checkpoint"
ok "the job is held" poll 20 state_is "$id" HALTED
is "$(job_field "$id" Priority) $(gpus_held "$id")" "0 0 0" "and holds nothing"
like "$(xc bellows halt --json "$id" 2>/dev/null)" '"unchanged":true' "halting it again changes nothing"
exits "resume of another user's job" 3 xc --user bob bellows resume "$id"
exits "resume at a size beyond the range" 3 xc bellows resume --gpus 9 "$id"
ok "resume at another size" xc bellows resume --gpus 2 --timeout 60 "$id"
poll 30 has_starts talk 3
is "$(last_start talk world) $(last_start talk step)" "2 $step" "continues from where it was, at that size"

# A halt of a job that waits is in its history, where its next launcher looks for one that was lost.
late=$(submit -- --framework=digits --gpus-range=1-8 --gpus=1 --begin=now+1hour --job-name=late job.sh)
waits_in=$CLUSTER/shared/checkpoints/alice/$late
xc mkdir -p "$waits_in"
like "$(xc bellows halt --json "$late" 2>/dev/null)" '"pending":true,"unchanged":false' "halt of a job that waits"
ok "is written down" in_file "$waits_in/events.jsonl" '"event":"HALTED","cause":"halted by alice"'
xc scancel "$late"

# What no launcher could write down.
poll 20 in_file "$home/mine/events.jsonl" '"restart":2.*committed step'
kill_one "$id" bellows ' run '
poll 40 has_starts talk 4
like "$(told "$id" '[l["cause"] for l in h["timeline"] if l["source"] == "slurm"][-1]')" 'launcher did not say why' \
  "history tells of a killed launcher"
is "$(told "$id" '[a["ended"] for a in h["attempts"]]')" "['RESIZING', 'HALTED', 'QUEUED', None]" "and how each attempt ended"
ok "with what it lost" told "$id" '1 / (h["attempts"][2]["lost_s"] > 0 and h["attempts"][0]["lost_s"] == 0)'
is "$(told "$id" 'len(h["missing"])')" 0 "with accounting nothing is missing"

# Concurrent writers, a torn line, and no slurmctld.
printf '{"time":1,"jo' >>"$home/mine/events.jsonl"
for i in 1 2 3 4; do
  python3 - "$home/mine/events.jsonl" "$i" <<'EOF' &
import os, sys, xxhash
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for time in range(50):
    line = (f'{{"time":{time},"job":999999,"restart":0,"attempt":{sys.argv[2]},"event":"X","cause":"",'
            '"gpus":0,"nodes":[],"step":null')
    os.write(log, f'{line},"sum":"{xxhash.xxh64(line).hexdigest()}"}}\n'.encode())
EOF
done
before=$(starts talk)
kill_one "$id" counter .
poll 30 has_starts talk $((before + 1))
is "$(told "$id" 'h["attempts"][-1]["attempt"]')" 2 "history continues after a torn line and other writers"
is "$(told "$id" 'h["damaged_lines"]')" 1 "and counts what it could not read"
mc stop-ctld
begin=$SECONDS
like "$(xc bellows history --checkpoint-dir "$home/mine" "$id" 2>&1)" 'HALTED.*missing: cannot read job' \
  "history without slurmctld says what it could not ask"
diag "which took $((SECONDS - begin)) s"
begin=$SECONDS
exits "resize without slurmctld keeps to its time" 4 xc bellows resize --timeout 2 "$id" 3
ok "which is its own" test $((SECONDS - begin)) -le "$(seconds 5)"
mc start-ctld
exits "resize without a slurm.conf" 4 xc env SLURM_CONF=/nonexistent bellows resize "$id" 3
poll 20 job_is "$id" RUNNING
xc scancel "$id"
poll 30 job_is "$id" CANCELLED
ok "logs -f ends with the job" poll 30 eval "! kill -0 $follow"
wait "$follow"
like "$(states "$id")" '^QUEUED DEPLOYING PROCESSING .*RESIZING .*HALTED QUEUED .*QUEUED\* .*CANCELLED ?$' "the whole story is told"
# Others' jobs, and none.
exits "history of a job that never was" 1 xc bellows history 99999
done_testing

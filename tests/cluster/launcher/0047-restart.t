#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# A rank dies: only the ranks start again, from what the agents have, also those of a Python program, which
# restores in several calls. An agent dies: all start again.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

cluster_up --nodes=2 --gpus=4

agents_of() { pids_of "$1" bellows 'bellows agent' | sort -n | tr '\n' ' '; }

job=$(submit_counter train --gpus=6 -- --steps 10000000 --sleep-us 2000 --save-every 20 --rows 200000)
poll 40 commits_past "$job" 40 || bail "the job does not commit"
agents=$(agents_of "$job")
is "$(wc -w <<<"$agents")" 2 "an agent on each node"

# Kills a process of the job, which then trains and commits again: comes_back WHAT COMM REGEX
comes_back() {
  hurts "$job"
  kill_one "$job" "$2" "$3"
  survives train "$job" "$1" 'on n[12] was killed by signal 9'
  ok "$1: and it commits" poll 20 commits_past "$job" "$(last_start train step)"
}
for ((i = 1; i <= 4; i++)); do comes_back "kill $i of a rank" counter .; done
is "$(agents_of "$job")" "$agents" "the agents have lived through it"
restored() { events_of "$job" | grep -o 'restored step [0-9]*: [^"]*' | tail -n "${1:-1}"; }
# A replicated array is stored on one of the nodes, and the other reads it from its file.
is "$(restored 100 | grep -c ': 1[.][0-9] MB from the agents. memory')" 4 \
  "each time from memory what the node had stored: $(restored)"

comes_back "kill of an agent" bellows 'bellows agent'
both_are_new() {
  local pid now
  now=$(agents_of "$job")
  [[ $(wc -w <<<"$now") == 2 ]] || return 1
  for pid in $agents; do [[ " $now" != *" $pid "* ]] || return 1; done
}
ok "kill of an agent: both agents are new" poll 20 both_are_new
like "$(restored)" ': 0.0 MB from the agents. memory' "kill of an agent: restored from files"

let_end train "$job" 400
ends_well train "$job" "all that"
is "$(job_field "$job" Restarts)" 0 "without a requeue"
poll 30 nodes_idle
is "$(pids_of "$job" bellows . | wc -l) $(pids_of "$job" counter . | wc -l)" "0 0" "nothing is left"

top=$(dirname "$(dirname "$TAP_HOME")") shared=$CLUSTER/shared
cp -r "$top/python/bellows" "$TAP_HOME/programs/tracker.py" "$shared/"
chmod -R a+rX "$shared/bellows" "$shared/tracker.py"
home=$shared/home/alice
printf '#!/bin/bash\nexec bellows run'"$run_kind"' -- /usr/bin/python3 -B %s %s\n' "$shared/tracker.py" "$home/python.log" \
  >"$home/python.sh"
job=$(submit --env PYTHONPATH="$shared" --env BELLOWS_LIBRARY="$build/checkpoint/.libs/libbellows.so.0" -- \
  --framework=digits --gpus-range=1-8 --gpus=2 --nodes=1 --job-name=python --output="$home/python.out" python.sh)
poll 40 commits_past "$job" 20 || bail "the Python job does not commit: $(out_of python | tail -n 5)"
step=$(committed "$job")
kill_one "$job" python3 tracker
ok "kill of a rank of a Python program: training again" poll 40 has_starts python 2
ok "from the newest step or a later one" test "$(last_start python step)" -ge "$step"
is "$(log_of python | grep -c right)" 2 "and with what was saved"
ok "and it commits" poll 20 commits_past "$job" "$(last_start python step)"
# The history is a moment behind. Of the rank that was killed, newer saves may have taken the buffer.
poll 10 grep -qE 'restored step [0-9]+: [1-9][0-9][.]' "$(checkpoints "$job")/events.jsonl"
like "$(restored)" ': [1-9][0-9][.][0-9] MB from the agents. memory' \
  "from memory what the node still has: $(restored)"
xc scancel "$job"
poll 30 nodes_idle
done_testing

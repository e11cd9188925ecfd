#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# A rank dies: only the ranks start again, from what the agents have. An agent dies: all start again.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$(dirname "$0")/jobs.sh"

cluster_up --nodes=2 --gpus=4

agents_of() { pids_of "$1" bellows 'bellows agent' | sort -n | tr '\n' ' '; }
# Kills a process of a job and waits for the next start: after_kill JOB NAME COMM REGEX
after_kill() {
  local before
  before=$(starts "$2")
  kill_one "$1" "$3" "$4" || return 1
  poll 40 has_starts "$2" $((before + 1))
}

job=$(submit_counter train --gpus=6 -- --steps 10000000 --sleep-us 2000 --save-every 20 --rows 200000)
poll 40 commits_past "$job" 40 || bail "the job does not commit"
agents=$(agents_of "$job")
is "$(wc -w <<<"$agents")" 2 "an agent on each node"

for ((i = 1; i <= 4; i++)); do
  step=$(committed "$job")
  ok "kill $i of a rank: training again" after_kill "$job" train counter .
  ok "kill $i: from the newest step or a later one" test "$(last_start train step)" -ge "$step"
  ok "kill $i: and it commits" poll 20 commits_past "$job" "$(last_start train step)"
done
is "$(agents_of "$job")" "$agents" "the agents have lived through it"
restored() { events_of "$job" | grep -o 'restored step [0-9]*: [^"]*' | tail -n "${1:-1}"; }
# A replicated array is stored on one of the nodes, and the other reads it from its file.
is "$(restored 100 | grep -c ': 1[.][0-9] MB from the agents. memory')" 4 \
  "each time from memory what the node had stored: $(restored)"

ok "kill of an agent: training again" after_kill "$job" train bellows 'bellows agent'
ok "kill of an agent: and it commits" poll 20 commits_past "$job" "$(last_start train step)"
both_are_new() {
  local pid now
  now=$(agents_of "$job")
  [[ $(wc -w <<<"$now") == 2 ]] || return 1
  for pid in $agents; do [[ " $now" != *" $pid "* ]] || return 1; done
}
ok "kill of an agent: both agents are new" poll 20 both_are_new
like "$(restored)" ': 0.0 MB from the agents. memory' "kill of an agent: restored from files"
is "$(job_field "$job" Restarts)" 0 "without a requeue"

xc scancel "$job"
poll 30 nodes_idle
is "$(pids_of "$job" bellows . | wc -l) $(pids_of "$job" counter . | wc -l)" "0 0" "nothing is left"
done_testing

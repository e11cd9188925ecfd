#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# kill -9 of a rank, an agent, the launcher or the client at each message by which a job stops: it goes on
# from the new step or from the old one, never from a mixture, and never hangs. All of them without a
# cluster, some on a real one. BELLOWS_LONG=1: before each message too, and all on the cluster.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

# shellcheck disable=SC2154
harness=$TAP_HOME/programs/stop_faults.py
which=SOME wanted=49
[[ -z ${BELLOWS_LONG:-} ]] || which=ALL wanted=85
TAP_LIMIT=900
# Beside the cluster, with which it has nothing in common.
exec {verdicts}< <("$harness" "$build" "$which")

impatient_cluster_up --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice
mkdir -p "$home/bin" "$home/faults"
ln -s "$TAP_HOME/programs/srun_relay.py" "$home/bin/srun"
chmod 777 "$home/faults" && chmod a+rx "$home/bin"
# shellcheck disable=SC2016
printf '#!/bin/bash\nexport PATH=%s/bin:$PATH REAL_SRUN=%s FAULT_DIR=%s/faults\nexec bellows run'"$run_kind"' -- %s --log %s --steps 100000000 --sleep-us 5000 --save-every 100\n' \
  "$home" "$(command -v srun)" "$home" "$counter" "$home/job.log" >"$home/job.sh"
id=$(submit -- --framework=digits --gpus-range=1-8 --gpus=6 --job-name=job --output="$home/job.out" job.sh)
poll 40 commits_past "$id" 99 || bail "the job does not commit: $(out_of job | tail -n 5)"

at() { # MESSAGE WHEN TARGET
  local before runs
  before=$(committed "$id")
  runs=$(starts job)
  rm -f "$home/faults/fault.done"
  echo "$*" >"$home/faults/new" && chmod 666 "$home/faults/new" && mv "$home/faults/new" "$home/faults/fault"
  xc scancel --signal=USR1 --batch "$id"
  poll 30 test -e "$home/faults/fault.done" || { fail "$*" "the fault did not come"; return; }
  poll 60 has_starts job $((runs + 1)) || { fail "$*" "$(out_of job | tail -n 5)"; return; }
  ok "$*, on a cluster: on from what was committed" test "$(last_start job step)" -ge "$before"
  poll 40 commits_past "$id" "$(last_start job step)" || fail "$*: and commits"
}
if [[ $which == ALL ]]; then
  for message in gate gated stop stop_set shard commit committed committed_to_agents; do
    for target in rank agent launcher; do at "$message" after "$target"; done
  done
else
  at gated after agent
  at shard after launcher
fi
unlike "$(out_of job)" 'is not what it was' "no checkpoint was a mixture"
xc scancel "$id"

cases=0
while read -r -u "$verdicts" verdict name; do
  cases=$((cases + 1))
  if [[ $verdict == pass ]]; then pass "$name"; else fail "${name%%:*}" "${name#*: }"; fi
done
is "$cases" "$wanted" "all cases were tried"
done_testing

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# bellows resize: up and down across both nodes, beside a neighbour, with a slow clock and with an
# epilog. BELLOWS_RESIZES says how many in a row (5).
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

resizes=${BELLOWS_RESIZES:-5}
sizes=(7 2 8 5 1 6 3 4)
# Slurm's default cred_expire, and the SchedulerParameters that we recommend.
cluster_up --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice
export TAP_LIMIT=120

# Resizes a job and looks at what it then holds: resize_to ID NAME GPUS WORLD-OPTION-OF-EXEC...
resize_to() {
  local id=$1 name=$2 gpus=$3 before
  shift 3
  before=$(starts "$name")
  xc "$@" bellows resize --json --timeout 100 "$id" "$gpus" 2>>"$home/progress" >"$home/report" || return 1
  poll 30 has_starts "$name" $((before + 1)) || { echo "the ranks did not start"; return 1; }
  local held
  held=$(gpus_held "$id")
  [[ ${held% *} == "$gpus" ]] || { echo "holds $held instead of $gpus"; return 1; }
  [[ $(last_start "$name" world) == "$gpus" ]] || { echo "has $(last_start "$name" world) ranks"; return 1; }
  local stop
  stop=$(log_of "$name" | sed -n 's/^stop step=\([0-9]*\) .*/\1/p' | tail -n 1)
  [[ $(last_start "$name" step) == "$stop" ]] || { echo "stopped at $stop, goes on from $(last_start "$name" step)"; return 1; }
  python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
assert r["to"] == int(sys.argv[2]) and sum(n["gpus"] for n in r["nodes"]) == r["to"], r
print("# commit %.1f s, requeue to running %.1f s" % (r["commit_s"], r["requeue_to_running_s"]))' \
    "$home/report" "$gpus" >>"$home/times"
}

# Several in a row: row COUNT ID NAME OPTION-OF-EXEC...
row() {
  local count=$1 id=$2 name=$3 i
  shift 3
  for ((i = 0; i < count; i++)); do
    resize_to "$id" "$name" "${sizes[i % ${#sizes[@]}]}" "$@" || { cat "$home/progress"; return 1; }
  done
}

id=$(submit_counter job --gpus=2 -- --steps 1000000 --sleep-us 5000 --save-every 100)
poll 30 commits_past "$id" 99
ok "$resizes resizes in a row, up and down across both nodes" row "$resizes" "$id" job
diag "$(sort "$home/times" | sed -n "$(((resizes + 1) / 2))p") (median)"
is "$(job_field "$id" Restarts)" "$resizes" "each by one requeue"
grep -q 'warning:' "$home/progress" && diag "$(<"$home/progress")"

# A neighbour that launches steps all the time makes slurmd forget and remember jobs.
printf '#!/bin/bash\nwhile :; do srun --gres=none true; sleep 0.2; done\n' >"$home/../bob/steps.sh"
chown bob: "$home/../bob/steps.sh" 2>/dev/null || chown 20002:20101 "$home/../bob/steps.sh"
neighbours=()
for node in n1 n2; do
  neighbours+=("$(submit --user bob -- --nodelist="$node" --ntasks=1 steps.sh)")
done
poll 20 job_is "${neighbours[1]}" RUNNING
sizes=(6 2)
ok "beside a neighbour that launches steps" row 2 "$id" job
xc --user root scancel "${neighbours[@]}"

sizes=(5 1)
ok "from a client whose clock is 5 s slow" row 2 "$id" job --skew -5
ok "and 5 s fast" row 2 "$id" job --skew 5

# Two demands at once: one is done, the other is told.
xc bellows resize "$id" 4 >"$home/first" 2>&1 &
first=$!
poll 20 grep -q stopping "$home/first"
status=0
second=$(xc bellows resize "$id" 3 2>&1) || status=$?
first_status=0
wait "$first" || first_status=$?
# The later one may come when the job is already stopping, or when it waits and can be asked for less.
if ((status == 0)); then wanted="1 3"; else wanted="0 4"; fi
is "$first_status $(gpus_held "$id" | cut -d' ' -f1)" "$wanted" "two demands at once: one is done"
if ((status == 0)); then told=$(<"$home/first"); else told=$second; fi
like "$told" 'already stopping|is ending|instead of|nothing was changed' "and the other is told"
world_is() { [[ $(last_start job world) == "$1" ]]; }
poll 30 world_is "${wanted#* }"
poll 20 commits_past "$id" "$(last_start job step)"

# A slurmctld that has just come back starts no steps for some seconds.
mc stop-ctld && mc start-ctld
sizes=(6)
ok "right after a restart of slurmctld" row 1 "$id" job

# The client goes away after the commit: the launcher does the rest.
before=$(starts job)
xc bellows resize --timeout 100 "$id" 2 >"$home/left" 2>&1 &
poll 20 grep -q 'stopping at' "$home/left"
for pid in $(pgrep -x bellows); do
  tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q "resize --timeout 100 $id 2" &&
    grep -qz "SLURM_CONF=$CLUSTER/" "/proc/$pid/environ" && kill -KILL "$pid"
done 2>/dev/null
wait $! 2>/dev/null
poll 90 has_starts job $((before + 1))
is "$(last_start job world)" 2 "a client that is killed leaves a job that makes the move alone"

# From 25.11 slurmd knows a run by an id of its own, and has nothing to issue again.
if slurm_is_from 25.11; then
  names=$(sed -n "s/.*Launching batch JobId=$id SLUID=\([^ ]*\) .*/\1/p" "$CLUSTER"/log/slurmd-*.log)
  isnt "$(wc -l <<<"$names")" 1 "slurmd knows each run by an id of its own"
  is "$(sort <<<"$names" | uniq -d)" "" "which no other run had"
else
  for node in n1 n2; do
    like "$(grep -c "reissued job credential for job $id" "$CLUSTER/log/slurmd-$node.log")" '^[1-9]' \
      "slurmd on $node reissued the credential"
  done
fi

# An epilog makes Slurm clean up more slowly, and node by node.
# shellcheck disable=SC2016
printf '#!/bin/sh\nsleep 1\ntouch %s/epilog-on-$SLURMD_NODENAME\n' "$CLUSTER" >"$CLUSTER/shared/epilog"
chmod 755 "$CLUSTER/shared/epilog"
echo "Epilog=$CLUSTER/shared/epilog" >>"$CLUSTER/etc/slurm.conf"
xc --user root scontrol reconfigure
poll 20 commits_past "$id" "$(last_start job step)"
sizes=(8 3)
ok "with an epilog" row 2 "$id" job
ok "which runs on both nodes" poll 10 test -e "$CLUSTER/epilog-on-n1" -a -e "$CLUSTER/epilog-on-n2"
is "$(grep -c 'Killing non-startable' "$CLUSTER/log/slurmctld.log")" 0 "no relaunch was lost"
xc scancel "$id"
done_testing

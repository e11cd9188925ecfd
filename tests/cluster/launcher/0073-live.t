#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 330
# Jobs of two tenants under bellowsd, whose steps last as long as a table says: each uses every sample once,
# whatever sizes it has. Beside them what the simulator makes of the same arrivals, with the cost of starts
# and restarts as it was. `make bench BENCH=live` is the long form.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
replay=$build/tests/cluster/programs/replay
for program in "$replay" "$build/elastic/bellowsd" "$build/launcher/bellows"; do
  [[ -x $program ]] || skip_all "$program is not built"
done
cluster_up --nodes=2 --gpus=4 --elastic
work=$CLUSTER/shared/live

# Programs that scale well inside a node, one of them not beyond it.
model() { # NAME BATCH STEPS SECONDS-OF-A-STEP-ON-ONE-GPU SECONDS-BETWEEN-NODES
  mkdir -p "$work/models/$1"
  awk -v OFS=, -v batch="$2" -v step="$4" -v between="$5" 'BEGIN {
    print "placement,local_bsz,step_time,sync_time"
    split("1 2 3 4 11 12 13 14 22 23 24 33 34 44", placements, " ")
    for (p = 1; p in placements; ++p) {
      gpus = 0
      for (d = 1; d <= length(placements[p]); ++d) gpus += substr(placements[p], d, 1)
      sync = length(placements[p]) == 1 ? 0.001 : between
      print placements[p], int(batch / gpus), step / gpus + sync, sync
    }
  }' >"$work/models/$1/placements.csv"
  printf 'num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,8,%d,%s,%s\n' $(($2 / 8)) "$5" \
    "$(awk -v between="$5" 'BEGIN { print between / 2 }')" >"$work/models/$1/scalability.csv"
  printf 'progress,iteration,grad_sqr,grad_var\n%d,%d,1,1\n' "$3" "$3" >"$work/models/$1/validation-$2.csv"
}
model wide 64 150 0.8 0.01
model narrow 64 100 0.6 0.3
cat >"$work/jobs.csv" <<'CSV'
name,time,application,num_replicas,batch_size,tenant
first,0,wide,2,64,vision
second,6,narrow,2,64,speech
third,14,wide,4,64,vision
fourth,20,wide,2,64,speech
CSV

told=$work/told.json
ok "every job ends, has used each sample once, and had sizes of its contract" \
  "$TAP_HOME/../bench/live_play.py" "$CLUSTER" "$work/jobs.csv" --models "$work/models" \
  --replay "$replay" --limit 250 --output "$told"
is "$(jq -c '[(.jobs | length), .wrong]' "$told")" '[4,[]]' "which goes for all of them"
ok "bellowsd has changed sizes" test "$(jq .restarts "$told")" -gt 0
like "$(cat "$CLUSTER/log/bellowsd.log")" 'plan .* -> .*all sizes run after' "by its plans"

cost() { jq ".$1" "$told"; }
"$build/launcher/bellows" simulate --json --models "$work/models" --nodes 2 --scheduler bellowsd --round 1 \
  --policy "$CLUSTER/etc/bellows.yaml" --restart "$(cost restart_s)" --start "$(cost start_s)" \
  "$work/jobs.csv" >"$work/simulated.json"
is "$(jq '.[0].jobs_done' "$work/simulated.json")" 4 "the simulator plays the same arrivals with bellowsd's planner"
diag "mean completion: $(cost mean_s) s, simulated $(jq '.[0].mean_completion_s' "$work/simulated.json") s;" \
  "$(cost restarts) restarts of $(cost restart_s) s each, starts of $(cost start_s) s"
done_testing

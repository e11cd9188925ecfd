#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 120
# bellows simulate, as a person uses it: tables in, a table, JSON or a picture out. No Slurm is needed.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

build=${BELLOWS_BUILDDIR:-$(dirname "$(dirname "$TAP_HOME")")/build}
bellows=$build/launcher/bellows
[[ -x $bellows ]] || skip_all "$bellows is not built"
work=$(mktemp -d "${TMPDIR:-/tmp}/bellows-simulate-XXXXXX")
trap 'rm -rf "$work"; tap_end' EXIT

# A program that scales well inside a node, and half as well between nodes.
mkdir -p "$work/models/vision"
awk -v OFS=, 'BEGIN {
  print "placement,local_bsz,step_time,sync_time"
  split("1 2 3 4 11 12 13 14 22 23 24 33 34 44", placements, " ")
  for (p = 1; p in placements; ++p) {
    gpus = 0
    for (d = 1; d <= length(placements[p]); ++d) gpus += substr(placements[p], d, 1)
    sync = gpus == 1 ? 0.001 : length(placements[p]) == 1 ? 0.01 : 0.1
    for (b = 8; b <= 128; b *= 2) print placements[p], b, 0.02 + b / 500 + sync, sync
  }
}' >"$work/models/vision/placements.csv"
printf 'num_nodes,num_replicas,local_bsz,step_time,sync_time\n4,16,8,0.16,0.12\n4,16,64,0.27,0.12\n' \
  >"$work/models/vision/scalability.csv"
for batch in 64 256 1024; do
  awk -v OFS=, -v batch="$batch" 'BEGIN {
    print "progress,iteration,metric,grad_sqr,grad_var"
    for (e = 1; e <= 20; ++e) print 500 * e, 32000 * e / batch * (1 + batch / 4096), e / 20, 1, e
  }' >"$work/models/vision/validation-$batch.csv"
done
awk -v OFS=, 'BEGIN {
  print "name,time,application,num_replicas,batch_size"
  for (j = 0; j < 12; ++j) print "job-" j, 100 * j, "vision", 1 + j % 4 * 2, 256
}' >"$work/jobs.csv"

simulate() { "$bellows" simulate --models "$work/models" --nodes 4 "$@"; }

simulate --json "$work/jobs.csv" >"$work/all.json"
is "$(jq -r '[.[].scheduler] | join(" ")' "$work/all.json")" \
  "elastic bellowsd pollux sia tiresias optimus fixed-batch fixed-batch-initial fixed-batch-largest \
fixed-batch-random fixed-size informed" "each scheduler runs"
ok "none is better than what can be" jq -e 'all(.mean_completion_s >= .least_mean_s)' "$work/all.json"
is "$(jq '[.[].jobs_done] | unique | .[]' "$work/all.json")" 12 "under each of them all jobs end"
ok "elasticity ends jobs sooner than fixed sizes" \
  jq -e '(.[0].mean_completion_s < .[10].mean_completion_s)' "$work/all.json"
simulate --json "$work/jobs.csv" | jq 'del(.[].wall_s)' >"$work/again.json"
is "$(<"$work/again.json")" "$(jq 'del(.[].wall_s)' "$work/all.json")" "the same again gives the same"
ok "a dear restart is paid seldom" jq -e '.[0].restarts_per_job < 1' \
  <(simulate --json --scheduler elastic --restart 5000 "$work/jobs.csv")
is "$(simulate --json --scheduler tiresias --until 500 "$work/jobs.csv" | jq '.[0].end_s == 500')" true \
  "it ends where it is told to"

like "$(simulate --scheduler elastic --scheduler tiresias "$work/jobs.csv")" \
  "elastic +jobs .*tiresias +jobs " "the table has a row for each scheduler"
ok "a picture is written" simulate --scheduler elastic --picture "$work/p.html" "$work/jobs.csv"
like "$(<"$work/p.html")" "<svg.*job-11" "with each job"

simulate --json --scheduler elastic --scheduler tiresias --restart 2.3,600 --round 60,120 \
  --baseline tiresias@600 --curves "$work/c.html" "$work/jobs.csv" >"$work/sweep.json"
ok "each restart is run with each round" jq -e '[.[] | select(.scheduler == "elastic") | [.restart_s, .round_s]] ==
  [[2.3, 60], [2.3, 120], [600, 60], [600, 120]]' "$work/sweep.json"
ok "a dearer restart makes jobs end later" \
  jq -e '.[0].mean_completion_s < .[2].mean_completion_s' "$work/sweep.json"
ok "each run is compared with the baseline of its round" jq -e \
  '.[6].mean_completion_s == .[0].baseline_mean_s and .[7].mean_completion_s == .[1].baseline_mean_s' \
  "$work/sweep.json"
is "$(grep -o '<h2>[^<]*' "$work/c.html" | cut -d'>' -f2 | paste -sd,)" \
  "Mean completion by restart,Mean completion by round" "and there is a chart for each of the two"
simulate --json --scheduler fixed-batch-initial --scheduler fixed-batch-largest --load 0.5,2 \
  --until 1000 "$work/jobs.csv" >"$work/loads.json"
ok "a load is as many times the jobs" jq -e '[.[] | [.load, .jobs]] == [[0.5, 6], [2, 24], [0.5, 6], [2, 24]]' \
  "$work/loads.json"
ok "the batch that a job is submitted with matters" \
  jq -e '.[0].mean_completion_s != .[2].mean_completion_s' "$work/loads.json"
like "$(simulate --scheduler elastic --restart 2.3,600 --baseline elastic "$work/jobs.csv")" \
  "restart \(s\) .*over baseline.* 2.3 .* 1.000 " "the table shows what differs"

cat >"$work/bellows.yaml" <<'YAML'
version: 1
controller: {addresses: ["ctl:6830"], dwell: 86400}
tenants: {a: {}, b: {}}
YAML
sed '1s/$/,tenant/; 2,$s/$/,b/' "$work/jobs.csv" >"$work/tenants.csv"
restarts() {
  simulate --json --scheduler bellowsd --round 1 --restart 6 --start 2 --policy "$work/bellows.yaml" \
    "$work/tenants.csv" | jq '.[0].restarts_per_job > 0'
}
is "$(restarts)" false "bellowsd moves no job before the policy lets it"
sed -i 's/86400/10/' "$work/bellows.yaml"
is "$(restarts)" true "and then does"
sed -i '/^controller/d' "$work/bellows.yaml"
like "$(simulate --policy "$work/bellows.yaml" "$work/jobs.csv" 2>&1)" 'names no controller' \
  "a policy without bellowsd is refused"

printf 'job_name,application,batch_size\nvision*,vision,256\n*,-,0\n' >"$work/programs.csv"
awk -v OFS='|' 'BEGIN {
  print "JobID", "Submit", "ElapsedRaw", "AllocTRES", "JobName"
  for (j = 0; j < 6; ++j) {
    print 100 + j, "2026-11-26T10:0" j ":00", 600, "cpu=4,gres/gpu=2,node=1", "vision|" j
    print 100 + j ".batch", "2026-11-26T10:0" j ":00", 600, "cpu=4,gres/gpu=2,node=1", "batch"
  }
  print 106, "2026-11-26T10:30:00", 60, "cpu=4,node=1", "no GPU"
}' >"$work/sacct.txt"
simulate --json --sacct "$work/programs.csv" --scheduler fixed-size --restart 0 --round 1 "$work/sacct.txt" \
  >"$work/month.json" 2>"$work/left-out"
is "$(jq -c '[.[0].jobs, (.[0].mean_completion_s | round)]' "$work/month.json")" "[6,600]" \
  "jobs of sacct take as long as they took, at the sizes that they had"
like "$(<"$work/left-out")" "1 job of .*sacct.txt left out" "and who ran on no GPU is left out"
sed -i 's/^103|2026/103|yesterday/' "$work/sacct.txt"
like "$(simulate --sacct "$work/programs.csv" "$work/sacct.txt" 2>&1)" \
  'sacct.txt, line 8: "yesterday-11-26T10:03:00" of Submit' "a time that is none is named with its line"

exits "no such scheduler" 1 simulate --scheduler best "$work/jobs.csv"
like "$(simulate --scheduler best "$work/jobs.csv" 2>&1)" 'no scheduler "best"; there are elastic' \
  "the message names those that there are"
exits "a picture of many runs" 2 simulate --picture "$work/p.html" "$work/jobs.csv"
exits "a picture of several restarts" 2 \
  simulate --scheduler elastic --restart 1,2 --picture "$work/p.html" "$work/jobs.csv"
exits "curves of a single point" 2 simulate --curves "$work/c.html" "$work/jobs.csv"
like "$(simulate --scheduler elastic --baseline pollux@30 "$work/jobs.csv" 2>&1)" \
  "baseline pollux@30 is not among the runs" "a baseline that would not be run is refused at once"
exits "an empty restart in a list" 2 simulate --restart 1,,2 "$work/jobs.csv"
exits "a load beyond all measure" 2 simulate --load 1e9 "$work/jobs.csv"
exits "a negative restart" 2 simulate --restart -1 "$work/jobs.csv"
sed 's/^job-3,300,/job-3,soon,/' "$work/jobs.csv" >"$work/broken.csv"
like "$(simulate "$work/broken.csv" 2>&1)" 'broken.csv, line 5: "soon" of time' \
  "a wrong cell is named with its line"
exits "a workload that is not there" 1 simulate "$work/none.csv"
exits "a picture where none can be written" 1 \
  simulate --scheduler fixed-size --picture /proc/none/p.html "$work/jobs.csv"
sed '2s/,256$/,1000000/' "$work/jobs.csv" >"$work/large.csv"
like "$(simulate "$work/large.csv" 2>&1)" "line 2: vision was measured with batches from 64 to 1024" \
  "a batch beyond what was measured is refused"
like "$("$bellows" simulate --models "$work/models" --nodes 1 --gpus-per-node 1 "$work/jobs.csv" 2>&1)" \
  "job-1 asks for 3 GPUs, and the cluster has 1" "and so is a job that can never run"

done_testing

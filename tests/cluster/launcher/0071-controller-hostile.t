#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# bellowsd among hostile users: forged, repeated and foreign reports, nonsense, and a thousand at once.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

[[ -x $build/elastic/bellowsd ]] || skip_all "$build/elastic/bellowsd is not built"
cluster_up --nodes=2 --gpus=4 --elastic
home=$CLUSTER/shared/home/alice
cp "$TAP_HOME/controller_call.py" "$CLUSTER/shared/controller_call.py"
chmod 755 "$CLUSTER/shared/controller_call.py"
slurm_uid=$(id -u slurm)

call() { # USER ACTION [ARGUMENT]
  local user=$1
  shift
  xc --user "$user" "$CLUSTER/shared/controller_call.py" "$CLUSTER/run/munge.socket" "$slurm_uid" "$@" 2>&1
}
answers() { xc bellows plan --json >"$home/plan" 2>&1; }
knows() { xc bellows plan --json | grep -q "\"job\": $1,"; } # JOB
as_controller() { xc --user root setpriv --reuid=slurm --clear-groups "$@"; }

poll 30 answers
# It is full, so that bellowsd has nothing to plan.
job=$(submit_counter job --gpus=8 -- --steps 10000000 --sleep-us 10000 --save-every 50)
poll 60 knows "$job"
report="{\"job\": $job, \"restarts\": 0, \"state\": \"running\", \"gpus\": 8, \"nodes\": 2}"

is "$(call alice report "$report")" 200 "a user may report of her own job"
is "$(call bob report "$report")" 403 "and not of another's"
is "$(call root report "$report")" 403 "not even root"
is "$(call alice report "${report/$job/9999}")" 404 "nor of a job that bellowsd does not resize"
is "$(call alice twice "$report")" "200 403" "a credential counts once"
is "$(call alice plan "$report")" 403 "and only for the path that it was sealed for"
is "$(call alice raw "$report")" 403 "what no munged has sealed is refused"
is "$(call alice raw "MUNGE:AwQDAAB=:")" 403 "and what only looks like that"
for nonsense in '"step_s": -1' '"step_s": 1e300' '"step_s": NaN' '"gpus": -4' '"step": 1e99' '"batch": "x"' '"state": 7'; do
  is "$(call alice report "${report%\}}, $nonsense}")" 400 "nonsense: $nonsense"
done
is "$(call alice report "$(head -c 100000 /dev/zero | tr '\0' ' ')")" 413 "a body that is too long"
ok "bellowsd answers all the same" answers

# A job's speed may be anything its user says; what others are given does not depend on that.
counts=$(call alice many "$report")
is "$counts" "200:1000" "a thousand launchers at once are all answered"
diag "a thousand reports at once: $counts"
ok "after which bellowsd answers" answers

call alice slow "$home/slow" >"$home/ended" &
poll 60 test -e "$home/slow"
ok "bellowsd answers beside two hundred connections that send a byte now and then" poll 30 answers
wait "$!"
is "$(cat "$home/ended")" 200 "which it ends"
is "$(job_field "$job" JobState)" RUNNING "the job runs on"

# Its reservations are closed to users.
like "$(submit -- --reservation=bellows-1 --gpus=1 --wrap=true 2>&1)" 'begin with "bellows-"' "a job cannot be submitted into bellowsd's reservations"
pending=$(submit_counter pending --gpus=8 --begin=now+1hour -- --steps 10)
like "$(xc scontrol update jobid="$pending" reservation=bellows-1 2>&1)" 'policy|begin with|reservation' "nor moved there"
is "$(job_field "$pending" Reservation)" "" "and is not"

# What bellowsd may do to a job is what its contract allows.
ok "SlurmUser may give a job a size of its contract" as_controller scontrol update jobid="$pending" tresperjob="${gres}gpu:2"
isnt "$(as_controller scontrol update jobid="$pending" tresperjob="${gres}gpu:12" >/dev/null 2>&1; echo $?)" 0 "and no other"
like "$(job_field "$pending" TresPerJob)" 'gpu:2' "the job asks for what it was given"

# The number of jobs is open to everybody, and nothing else.
metrics=$(xc python3 -c 'import urllib.request
print(urllib.request.urlopen("http://ctl:6830/metrics", timeout=10).read().decode())')
like "$metrics" 'bellowsd_refused_calls_total [1-9]' "refused calls are counted"
unlike "$metrics" 'alice|vision' "metrics name nobody"
xc scancel "$job" "$pending"
done_testing

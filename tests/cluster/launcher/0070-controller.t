#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 420
# bellowsd: jobs grow by themselves, make room for others, and go on whatever becomes of bellowsd.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

bellowsd=$build/elastic/bellowsd
[[ -x $bellowsd ]] || skip_all "$bellowsd is not built"
cluster_up --nodes=2 --gpus=4 --elastic
home=$CLUSTER/shared/home/alice
log=$CLUSTER/log/bellowsd.log

planned() { # JOB
  xc bellows plan --json | python3 -c 'import json, sys
for pool in json.load(sys.stdin)["pools"]:
    for job in pool["jobs"]:
        if job["job"] == int(sys.argv[1]): print(job["planned"])' "$1"
}
answers() { xc bellows plan --json >"$home/plan" 2>&1; }
# The GPUs that a job holds are so many, and its ranks count on.
holds() { [[ $(gpus_held "$1" | cut -d' ' -f1) == "$2" && $(last_start "$3" world) == "$2" ]]; } # JOB GPUS NAME
holds_less() { local held; held=$(gpus_held "$1" | cut -d' ' -f1); ((held > 0 && held < $2)); } # JOB GPUS
# The newest start was from the newest stop.
went_on() { [[ $(last_start "$1" step) == "$(log_of "$1" | sed -n 's/^stop step=\([0-9]*\) .*/\1/p' | tail -n 1)" ]]; } # NAME
reservations() { xc --user root scontrol --oneliner show reservations | grep -c 'ReservationName=bellows-'; }
no_reservation() { [[ $(reservations) == 0 ]]; }
plans() { grep -c 'all sizes run after' "$log"; }
plans_past() { (($(plans) > $1)); }
quiet() { xc bellows plan --json | grep -q '"in_force": null'; }
restarts_of() { job_field "$1" Restarts; }

poll 30 answers
like "$(ps -o user= -p "$(pgrep -x bellowsd | head -n 1)")" 'slurm|64030' "bellowsd runs as SlurmUser"
like "$(mc exec --user root -- "$bellowsd" 2>&1)" 'does not run as root' "and never as root"
like "$(xc bellows status --cluster)" 'bellowsd +alive, read slurmctld' "bellows status --cluster shows that it is alive"
like "$(xc bellows plan)" 'bellowsd +read slurmctld' "bellows plan answers any user"

# Alone, a job explores by doubling.
one=$(submit_counter one --gpus=2 -- --steps 10000000 --sleep-us 1000 --work-us 40000 --save-every 50)
ok "a job alone grows to all GPUs" poll 120 holds "$one" 8 one
like "$(causes "$one")" 'resize by bellowsd' "its history says who resized it"
diag "$(grep 'all sizes run' "$log" | tail -n 1)"

# Another one gets GPUs of it, though it was not there first.
two=$(submit_counter two --gpus=2 -- --steps 10000000 --sleep-us 1000 --work-us 40000 --save-every 50)
ok "and makes room for one that waits" poll 60 has_starts two 1
ok "and goes on with fewer" poll 60 holds_less "$one" 8
ok "from where it stopped" poll 60 went_on one

# When one ends, the other gets its GPUs.
poll 60 quiet
before=$(plans)
let_end two "$two" 200
poll 60 job_is "$two" COMPLETED
ok "what a job leaves goes to the other" poll 90 holds "$one" 8 one
poll 30 plans_past "$before"
diag "$(grep 'all sizes run' "$log" | tail -n 1)"

# A user's word counts more.
poll 60 quiet
xc bellows resize "$one" 3 >"$home/resize" 2>&1
ok "a user's resize is carried out" poll 30 holds "$one" 3 one
left_alone() { xc bellows plan | grep -Eq "^$1 .* 3 +3 +keeps its size: its user chose it"; } # JOB
ok "and bellowsd leaves it for a while" poll 30 left_alone "$one"
xc scancel "$one"

# Others do not step between: they wait with a higher priority.
three=$(submit_counter three --gpus=4 -- --steps 10000000 --sleep-us 1000 --work-us 40000 --save-every 50)
poll 60 holds "$three" 4 three
printf '#!/bin/bash\nsleep 1000\n' >"$home/../bob/wait.sh"
chown 20002:20101 "$home/../bob/wait.sh"
blocker=$(submit --user bob -- --gpus=4 --ntasks=1 wait.sh)
poll 20 job_is "$blocker" RUNNING
waiting=()
for _ in 1 2 3; do waiting+=("$(submit --user bob -- --gpus=2 --ntasks=1 wait.sh)"); done
restarts=$(restarts_of "$three")
xc --user root scancel "$blocker"
poll 30 job_is "${waiting[1]}" RUNNING
is "$(restarts_of "$three")" "$restarts" "GPUs that others wait for are not taken by elastic jobs"
xc --user root scancel "${waiting[@]}"
ok "and when nobody waits they are" poll 90 holds "$three" 8 three

# bellowsd is killed while a plan is carried out.
four=$(submit_counter four --gpus=2 -- --steps 10000000 --sleep-us 1000 --work-us 40000 --save-every 50)
# Slurm holds a job whose reservation has ended, unless the reservation says that it shall not.
is_kept_for() { [[ $(job_field "$1" Reservation) == bellows-* ]]; } # JOB
poll 60 is_kept_for "$four"
mc stop-bellowsd --signal KILL
runs_again() { holds "$three" "$(gpus_held "$three" | cut -d' ' -f1)" three && job_is "$three" RUNNING; }
ok "bellowsd is killed in a plan: the job that was to shrink runs within 30 s" poll 30 runs_again
like "$(gpus_held "$three")" '^[1-8] ' "within its contract"
poll 60 no_reservation
is "$(xc squeue --noheader --format='%r' --user alice | grep -c -i -e held -e reservation)" 0 "and nothing is held"
mc start-bellowsd
poll 30 answers
ok "the next bellowsd clears the reservation" poll 30 no_reservation
ok "and goes on: both jobs run" poll 120 has_starts four 1

# slurmctld is away for a while; it has saved that the jobs run.
has_run_for() { (($(date +%s) - $(date -d "$(job_field "$1" StartTime)" +%s) >= $2)); } # JOB SECONDS
for job in "$three" "$four"; do poll 60 has_run_for "$job" 6; done
mc stop-ctld --signal KILL
mc start-ctld
poll 60 answers
ok "a slurmctld that was killed is no reason to act" poll 30 runs_again

let_end three "$three" 200
let_end four "$four" 200
ends_well three "$three" "a job that was moved about"
ends_well four "$four" "and the one that came late"
ok "no reservation is left" poll 60 no_reservation

# Nobody gives a start time to a job without a launcher, and Slurm makes it wait for two minutes.
printf '#!/bin/bash\nsleep 1000\n' >"$home/alone.sh"
five=$(submit -- --framework=digits --gpus-range=1-8 --gpus=2 alone.sh)
poll 30 job_is "$five" RUNNING
# bellowsd only sees to what it has seen run.
is_known() { [[ -n $(planned "$five") ]]; }
poll 30 is_known
requeued=$(now_us)
xc scontrol requeue "$five"
runs_anew() { [[ $(restarts_of "$five") == 1 ]] && job_is "$five" RUNNING; }
ok "a job that is requeued without a start time runs again within 30 s" poll 30 runs_anew
diag "after $((($(now_us) - requeued) / 1000000)) s"
done_testing

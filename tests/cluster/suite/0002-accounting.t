#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 150
# The embedded cluster with accounts: who may use which, limits, records, and what is left.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"

records() { # JOB
  xc --user root sacct --noheader --parsable2 --allocations --jobs="$1" --format=User,Account,State
}

recorded() { [[ $(records "$1") == "$2" ]]; }

waits_for() { # JOB REASON
  [[ $(xc squeue --noheader --jobs="$1" --format=%r) == "$2" ]]
}

cluster_up --no-plugins --nodes=1 --gpus=4 --accounting
id=$(cluster_id "$CLUSTER")

is "$(xc sacctmgr --noheader --parsable2 list associations format=Account,User where user=alice,bob,carol | sort | xargs)" \
  "speech|carol vision|alice vision|bob" "the test users are in their accounts"

job=$(submit -- --output=/dev/null --gpus=1 --wrap true)
ok "alice's job without an account is recorded under her default" \
  poll 20 recorded "$job" "alice|vision|COMPLETED"
job=$(submit --user carol -- --account=speech --output=/dev/null --wrap 'exit 3')
ok "carol's failed job is recorded as such" poll 20 recorded "$job" "carol|speech|FAILED"
like "$(xc --user root sacct --noheader --parsable2 --allocations --format=AllocTRES)" gres/gpu=1 \
  "the record says how many GPUs a job had"
exits "alice can't use another account" 1 xc sbatch --account=speech --wrap true
exits "nor change limits" 1 xc sacctmgr --immediate modify account vision set GrpTRES=gres/gpu=100

# A limit on an account holds and can be changed while the cluster runs.
ok "root can limit an account" xc --user root \
  sacctmgr --immediate modify account vision set GrpTRES=gres/gpu=2
first=$(submit -- --gpus=2 --output=/dev/null --wrap 'sleep 100')
poll 20 job_is "$first" RUNNING
second=$(submit --user bob -- --gpus=1 --output=/dev/null --wrap true)
ok "a job above its account's limit waits" poll 20 waits_for "$second" AssocGrpGRES
other=$(submit --user carol -- --gpus=1 --output=/dev/null --wrap true)
ok "one of another account does not" poll 20 recorded "$other" "carol|speech|COMPLETED"
xc scancel "$first"
ok "it runs when there is room" poll 30 recorded "$second" "bob|vision|COMPLETED"

# slurmctld without its database, and after a restart.
ok "slurmctld can be killed" mc stop-ctld --signal KILL
ok "and starts again" mc start-ctld
poll 20 nodes_idle
job=$(submit -- --output=/dev/null --wrap true)
ok "and still records" poll 20 recorded "$job" "alice|vision|COMPLETED"

ok "down works" mc down
left_nothing "$id" "$CLUSTER"
done_testing

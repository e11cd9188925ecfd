#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# bellowsd: a second job of a class goes to its size at once, where the first one had to double.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

[[ -x $build/elastic/bellowsd ]] || skip_all "$build/elastic/bellowsd is not built"
cluster_up --nodes=2 --gpus=4 --elastic
home=$CLUSTER/shared/home/alice

answers() { xc bellows plan --json >"$home/plan" 2>&1; }
holds() { [[ $(gpus_held "$1" | cut -d' ' -f1) == "$2" && $(last_start "$3" world) == "$2" ]]; } # JOB GPUS NAME
# The numbers of ranks of all starts, in their order.
sizes_of() { log_of "$1" | sed -n 's/^start .*\<world=\([0-9]*\).*/\1/p' | tr '\n' ' '; } # NAME
count() { submit_counter "$@" -- --steps 10000000 --sleep-us 1000 --work-us 40000 --save-every 50 --batch 64; }

poll 30 answers
first=$(count first --gpus=2 --job-class=counting)
like "$(xc scontrol --oneliner show job "$first")" ' class=counting ' "the contract has the class"
ok "the first job of a class grows to all GPUs" poll 120 holds "$first" 8 first
is "$(sizes_of first)" "2 4 8 " "by doubling"
# At the last size its speed must have been reported: a mean over five seconds, in steps of 6 ms.
has_learnt() { (($(committed "$first") > $1)); }
poll 90 has_learnt "$(($(committed "$first") + 2500))"
xc scancel "$first"
poll 60 job_is "$first" CANCELLED

second=$(count second --gpus=2 --job-class=counting)
ok "the second grows to all GPUs" poll 120 holds "$second" 8 second
like "$(sizes_of second)" '^(2 )?8 $' "at once"
like "$(grep "job $second " "$CLUSTER/log/bellowsd.log")" 'by the speed of its class there' "and the log says why"
xc scancel "$second"
poll 60 job_is "$second" CANCELLED

other=$(count other --gpus=2 --job-class=another)
ok "a job of another class grows to all GPUs" poll 120 holds "$other" 8 other
is "$(sizes_of other)" "2 4 8 " "by doubling, as the first"
done_testing

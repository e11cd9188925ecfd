#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 150
# Ranks that end well before Slurm notices that the node of the others was lost, with --no-kill: srun takes
# those for ended and ends with status 0. Nobody helps.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=2 --gpus=2
home=$CLUSTER/shared/home/alice
# Ranks of a program that knows nothing of Bellows, and that know nothing of each other.
cat >"$home/apart.sh" <<SH
#!/bin/bash
exec bellows run$run_kind -- sh -c 'echo begin; until [ -e end ]; do sleep 0.1; done
  [ "\$SLURM_NODEID" = 0 ] || [ -e all ] || sleep 1000
  echo end'
SH
apart=$(submit -- --framework=digits --gpus-range=1-4 --gpus=4 --nodes=2 --no-kill --output="$home/apart.out" apart.sh)
said() { (($(out_of apart | grep -c "$1") == $2)); } # WORD TIMES
poll 30 said begin 4 || bail "the job does not start: $(out_of apart)"
mc kill-node 2
touch "$home/end"
ok "the ranks of the node that is left end" poll 20 said end 2
touch "$home/all"
requeued() { [[ $(job_field "$apart" Restarts) == 1 ]]; }
# From 24.11 srun tells of the lost node itself, and what is left of the job is enough.
begun=4
if slurm_is_from 24.11; then
  begun=2
  ok "once the other's loss is known, the job goes on with what is left" poll 60 said begin 6 || diag "$(out_of apart)"
else
  ok "once the other's loss is known, the job is requeued" poll 60 requeued || diag "$(out_of apart)"
fi
mc start-node 2
ok "and comes to its end" poll 60 job_is "$apart" COMPLETED || diag "$(job_field "$apart" Reason)"
is "$(out_of apart | tac | sed '/ranks start/q' | grep -c '^end')" "$begun" "with the work of all ranks" ||
  diag "$(out_of apart)"
like "$(causes "$apart" | xargs)" 'node n2 was lost' "the history gives the cause"

# From seven nodes on the slurmstepds tell each other of their ends, and wait a minute for a lost one's.
if [[ -n ${BELLOWS_LONG:-} ]]; then
  mc down --purge
  impatient_cluster_up --nodes=7 --gpus=2
  # shellcheck disable=SC2034
  home=$CLUSTER/shared/home/alice
  wide=$(submit_counter wide --no-kill --gpus-per-node=1 --nodes=7 -- --steps 100000 --sleep-us 10000 --save-every 50)
  poll 40 commits_past "$wide" 99 || bail "the job does not commit: $(out_of wide | tail -n 5)"
  mc kill-node 7
  ok "a job of seven nodes that loses one continues" poll 180 has_starts wide 2 || diag "$(out_of wide)"
  is "$(last_start wide world) $(job_field "$wide" Restarts)" "6 0" "in place, with those that are left"
  let_end wide "$wide" 250
  ok "and comes to its end" poll 60 job_is "$wide" COMPLETED || diag "$(out_of wide)"
fi
done_testing

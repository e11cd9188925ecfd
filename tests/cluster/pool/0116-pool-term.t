#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# Slurm takes the keeper's node for lost, while the keeper there goes on with slurmctld, the file system and all members in
# its reach, and what would end it hangs: the next one has the pool to itself, and no member is lost or comes twice.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/pool/pool.sh
. "$TAP_HOME/pool/pool.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

[[ -x $build/pool/bellows-pool ]] || skip_all "bellows-pool is not built"
impatient_cluster_up --nodes=2 --gpus=1
home=$CLUSTER/shared/home/alice
dir=$home/.bellows/pools/two

# The port is the job's own: members share a node.
cat >"$home/two.sbatch" <<'S'
#!/bin/bash
#SBATCH --cpus-per-task=1 --nodelist=n2
port=$((20000 + SLURM_JOB_ID % 20000))
exec bellows pool member --port $port -- python3 -m http.server $port
S

pool() { xc bellows pool "$@"; }
ready() { [[ $(pool show two --json | jq .ready) == "$1" ]]; }
members() { pool show two --json | jq -r '.members[].job' | sort | xargs; }
jobs() { ask_slurm squeue --noheader --states=all --name=two.member --format=%i | sort | xargs; }
keeper_is_on() { [[ $(jq -r .host "$dir/keeper.json") == "$1" ]]; }
node_is() { [[ $(ask_slurm sinfo --noheader --nodes="$1" --format=%T) =~ $2 ]]; }

pool create two --min 2 --max 4 "$home/two.sbatch" >/dev/null
poll 60 ready 2 || bail "the pool has no two members: $(pool show two --json)"
keeper_is_on n1 || bail "the keeper is on the node of its members"
before=$(members)
term=$(jq .term "$dir/keeper.json")
job=$(pool show two --json | jq .keeper_job)
keepers=$(pool_pids '^[^ ]*bellows-pool keeper two$' | xargs)
launcher="$(pids_of "$job" bellows 'bellows run') $(pids_of "$job" srun .)"
slurmd=$(pool_pids 'slurmd .*n1( |$)')
[[ -n $slurmd && $launcher == *[0-9]*' '*[0-9]* ]] || bail "n1 has no slurmd, or no launcher: $slurmd, $launcher"

# shellcheck disable=SC2086
kill -STOP $slurmd $launcher
# It would find that by itself within a minute or so.
xc --user root scontrol update nodename=n1 state=down reason=test
ok "Slurm starts another keeper on the other node" poll 90 keeper_is_on n2
# shellcheck disable=SC2086
all_gone() { ! kill -0 $keepers 2>/dev/null; }
ok "the one that was cut off ends" poll 20 all_gone
ok "the term is a later one" test "$(jq .term "$dir/keeper.json")" -gt "$term"
ok "the pool has its members" poll 30 ready 2
is "$(members) / $(jobs)" "$before / $before" "which are those of before, and no others"
ok "it grows" pool scale two 3
ok "with its new keeper" poll 30 ready 3
# shellcheck disable=SC2086
kill -CONT $slurmd
xc --user root scontrol update nodename=n1 state=resume
ok "Slurm can use the node again" poll 90 node_is n1 '^idle'
# The end of an srun there has Slurm cancel a step of the same number, which may be the next run's: the keeper comes back.
ok "and the pool is as it was" poll 60 eval "ready 3 && keeper_is_on n2"
is "$(jobs | wc -w)" 3 "with each member submitted once"
ok "the pool is deleted" poll 60 pool delete two
ok "and leaves nobody" poll 30 eval "[[ -z \$(pool_pids 'bellows-pool (member|keeper)') ]]"
done_testing

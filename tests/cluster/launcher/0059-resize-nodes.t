#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# A resize keeps to what the policy says of nodes; a job that Slurm says can never run goes back to
# its old size by itself.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/bellows-nodes-XXXXXX")
trap 'rm -rf "$work"; tap_end' EXIT
cat >"$work/bellows.yaml" <<'YAML'
version: 1
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks: {digits: {versions: ["1.0"]}}
tenants:
  vision: {gpus: {min: 1, max: 16}}
  capped: {gpus: {min: 1, max: 8, max_nodes: 1}}
  whole: {gpus: {max: 8, sizes: whole_nodes, gpus_per_node: 4}}
default_tenant: vision
YAML
cluster_up --nodes=2 --gpus=4 --bellows-conf "$work/bellows.yaml"
home=$CLUSTER/shared/home/alice
export TAP_LIMIT=120

counting() { submit_counter "$@" -- --steps 1000000 --sleep-us 20000 --save-every 20; } # NAME OPTION...
resize() { xc bellows resize --timeout 60 "$@" 2>&1; } # ID GPUS
refused() { local told; told=$(resize "$@") && echo "was accepted:"; echo "$told"; }

### The most nodes of a tenant.
id=$(counting capped -A capped --gpus=2)
poll 30 commits_past "$id" 0
ok "a job of a tenant of one node grows on it" resize "$id" 4
is "$(gpus_held "$id") $(job_field "$id" NumNodes)" "4 1 1" "and stays there"
poll 30 has_starts capped 2
told=$(refused "$id" 8)
if slurm_is_from 26.05; then
  like "$told" "job $id runs again, but with 4 GPUs instead of 8" \
    "8 GPUs need a second node: Slurm gives those of one, and the command says so"
else
  like "$told" "job $id can never run with 8 GPUs.*\(BadConstraints\).*asks for 4 GPUs again" \
    "8 GPUs need a second node: Slurm says never, and the command says so"
fi
poll 30 has_starts capped 3
is "$(gpus_held "$id")" "4 1" "and the job runs again with its 4 GPUs on one node"
xc scancel "$id"
poll 30 nodes_idle
id=$(counting capped2 -A capped --gpus=2 --nodes=1)
poll 30 commits_past "$id" 0
id2=$(submit -- --gpus=2 --nodelist=n1 --wrap 'sleep 1000')
poll 30 job_is "$id2" RUNNING
resize "$id" 3 >"$home/two.told" &
two=$!
poll 30 grep -q 'waits' "$home/two.told"
is "$(job_field "$id" NumNodes | sed 's/^1-1$/1/')" 1 "where one node has no room beside another job, the job waits for it"
xc scancel "$id2"
wait $two
is "$(gpus_held "$id")" "3 1" "and gets it"
xc scancel "$id"
poll 30 nodes_idle

### Whole nodes.
id=$(counting whole -A whole --gpus-range=4-8:4 --gpus=4)
poll 30 commits_past "$id" 0
ok "a job of whole nodes grows to two" resize "$id" 8
is "$(gpus_held "$id")" "8 2" "and holds them whole"
poll 30 has_starts whole 2
ok "and shrinks to one" resize "$id" 4
is "$(gpus_held "$id")" "4 1" "and holds that whole"
poll 30 has_starts whole 3
xc scancel "$id"
poll 30 nodes_idle
done_testing

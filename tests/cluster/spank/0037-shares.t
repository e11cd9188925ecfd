#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 60
# Shards of GPUs: a container in a plain job sees the GPU on which the job's shards lie and no other,
# and a job whose own options count whole GPUs is refused in words.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

container_cluster_up "" --nodes=1 --gpus=2
etc=$CLUSTER/etc
mc stop-ctld
mc kill-node 1
sed -i -e 's/^GresTypes=gpu/&,shard/' -e 's/Gres=gpu:2/&,shard:8/' "$etc/slurm.conf"
echo 'NodeName=n1 Name=shard Count=8' >>"$etc/gres.conf"
mc start-ctld
mc start-node 1
poll 30 nodes_idle || bail "the cluster does not start with shards"

sees='for i in 0 1; do test -c /dev/nvidia$i && echo "sees $i"; done; echo "has $SLURM_SHARDS_ON_NODE"'
box=(srun --quiet --mpi=none --container-image="$images/busybox.sqsh")
said=$(xc salloc --quiet --gres=shard:2 "${box[@]}" sh -c "$sees" 2>&1)
is "$(grep -c sees <<<"$said")" 1 "a container of a job with shards sees one GPU of two" || diag "$said"
like "$said" 'has 2$' "where its shards are"
said=$(xc salloc --quiet --gres=shard:2 "${box[@]}" sh -c 'for i in 0 1; do head -c 0 /dev/nvidia$i; done' 2>&1)
is "$(grep -c 'No such file' <<<"$said")" 1 "the other one is not there" || diag "$said"
said=$(xc "${box[@]}" --gres=shard:2 true 2>&1)
like "$said" 'shares of a GPU .shard. cannot be combined with' "a job with options that count whole GPUs is refused in words"
said=$(xc salloc --quiet "${box[@]}" sh -c "$sees" 2>&1)
is "$(grep -c sees <<<"$said")" 0 "without shards a container sees none" || diag "$said"
done_testing

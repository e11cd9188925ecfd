#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# Beside Slurm's own private directories, job_container/tmpfs and from 25.11 namespace/linux and
# namespace/tmpfs: a job with a contract has the view of Bellows and its fence, or is refused in words.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"

cluster_up --nodes=1 --gpus=4
etc=$CLUSTER/etc
cp "$etc/slurm.conf" "$CLUSTER/shared/slurm.conf"
printf 'AutoBasePath=true\nBasePath=/run/jobs\n' >"$etc/job_container.conf"
cat >"$etc/namespace.yaml" <<'Y'
# Without it this needs a kernel from 6.9 on, and cgroup v2.
disable_bpf_token: true
defaults:
  auto_base_path: true
  base_path: /run/jobs
  dirs: "/tmp,/dev/shm"
Y

# The cluster with a line more in slurm.conf.
restart_with() { # LINE
  mc stop-ctld && mc kill-node 1 || return 1
  cat "$CLUSTER/shared/slurm.conf" - <<<"$1" >"$etc/slurm.conf"
  mc start-ctld && mc start-node 1 && poll 30 nodes_idle
}
private() { grep -c " $1 tmpfs .*uid=20001" <<<"$said"; } # DIRECTORY: how often the job's own space is there

settings=(JobContainerType=job_container/tmpfs)
! slurm_is_from 25.11 || settings=(NamespaceType=namespace/linux NamespaceType=namespace/tmpfs)
for setting in "${settings[@]}"; do
  ok "a cluster with $setting" restart_with "$setting" || bail "it does not start"
  ok "a job without a contract runs" xc --user bob srun --quiet --mpi=none true
  status=0
  said=$(xc srun --quiet --mpi=none --framework=plain --gpus=1 sh -c 'cat /proc/self/mounts
    for i in 0 1 2 3; do head -c 0 /dev/nvidia$i 2>&1; done' 2>&1) || status=$?
  if [[ $status != 0 && $said == *"without job_container/tmpfs and namespace/tmpfs"* ]]; then
    isnt "$setting" NamespaceType=namespace/linux "one with a contract is refused in words"
    continue
  fi
  isnt "$(private /tmp)" 0 "one with a contract has a /tmp of its own" || diag "$said"
  is "$(grep -cE 'nvidia[0-3].*(Permission denied|not permitted)' <<<"$said")" 3 "and one GPU of four" || diag "$said"
done
done_testing

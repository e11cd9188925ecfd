#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 120
# minicluster itself: users, namespaces, GPUs, MPI, faults, several clusters, and what is left.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"

# What no cluster may change at all.
machine() {
  # But for loop devices: the kernel keeps a node for each that containers ever needed at once.
  find /dev/* /etc/slurm /etc/munge /etc/passwd /etc/group /etc/hosts \
    \( -name 'loop[0-9]*' -o -path /dev/pts -o -path /dev/shm \) -prune -o -printf '%p %y %m %u %g %s\n' | sort
  ls -A / /run/netns /var/spool 2>&1
}

before=$(machine)
echo "SlurmdTimeout=4" >"${TMPDIR:-/tmp}/bellows-$$.conf"
cluster_up --no-plugins --nodes=2 --gpus=4 --slurm-conf "${TMPDIR:-/tmp}/bellows-$$.conf"
rm -f "${TMPDIR:-/tmp}/bellows-$$.conf"
first=$CLUSTER
shared=$CLUSTER/shared

# Users, input, output and status.
is "$(xc id -un):$(xc id -gn):$(xc pwd)" "alice:vision:$shared/home/alice" "exec runs as alice, at home"
is "$(xc --user carol id -gn)" speech "carol is in the group speech"
is "$(echo words | xc cat)" words "standard input passes through"
exits "the exit status passes through" 7 xc sh -c 'exit 7'
exits "an unknown user is refused" 1 xc --user nobody-here true
is "$(SECRET=1 xc --env "GREETING=a b" sh -c 'echo "$GREETING$SECRET"')" "a b" \
  "the environment holds what --env says and nothing else of the caller's"
exits "an unknown command is wrong usage" 2 "$MINICLUSTER" fly --dir "$CLUSTER"
exits "an option of another command is wrong usage" 2 mc down --nodes 3
exits "a wrong number is wrong usage" 2 "$MINICLUSTER" up --dir "$CLUSTER-other" --nodes 0
exits "a second up in the same directory is refused" 1 mc up --no-plugins
mkdir -p "$CLUSTER/shared/other/etc"
exits "a directory with other files is refused" 1 \
  "$MINICLUSTER" up --no-plugins --dir "$CLUSTER/shared/other"
exits "also by down" 1 "$MINICLUSTER" down --purge --dir "$CLUSTER/shared/other"
ok "and keeps its files" test -d "$CLUSTER/shared/other/etc"
ok "and the cluster runs on" xc srun --nodes=2 true

# A job, and root's own shell.
ok "alice's batch job runs" xc sbatch --wait --output=job.out --wrap 'hostname; id -un; pwd'
is "$(cat "$shared/home/alice/job.out")" "n1"$'\n'"alice"$'\n'"$shared/home/alice" "on a node, as alice, at home"
is "$(stat -c %U:%a "$shared/home/alice" 2>&1 | sed 's/UNKNOWN/20001/'):$(stat -c %u "$shared/home/alice/job.out")" \
  "20001:700:20001" "its files are alice's"
is "$(cd / && eval "$("$MINICLUSTER" env --dir "$CLUSTER")" && timeout 20 srun --nodes=2 hostname | sort | xargs)" \
  "n1 n2" "with the lines of env, srun works from the machine's own shell"

# MPI over two nodes.
cat >"$shared/sum.c" <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, sum %d\n", size, sum);
  MPI_Finalize();
  return 0;
}
C
ok "an MPI program compiles" mpicc -o "$shared/sum" "$shared/sum.c"
if [[ -n $has_pmix ]]; then
  is "$(xc srun --quiet --mpi=pmix --nodes=2 --ntasks=4 "$shared/sum" 2>&1)" "4 ranks, sum 10" "MPI runs over both nodes"
  is "$(xc srun --quiet --nodes=2 --ntasks=2 "$shared/sum" 2>&1)" "2 ranks, sum 3" "also without --mpi"
else
  skip "MPI runs over both nodes" "this Slurm has no mpi/pmix"
fi

# GPUs: the wrong ones are fenced off (EPERM); the right ones have no driver here, or open.
fence=$(xc srun --gpus=2 --ntasks=1 sh -c \
  'for i in 0 1 2 3; do head -c 0 "/dev/nvidia$i" 2>&1 || true; done; echo "$CUDA_VISIBLE_DEVICES"')
is "$(grep -c 'Operation not permitted' <<<"$fence")" 2 "a job's tasks can't open other jobs' GPUs"
unlike "$(grep -E 'nvidia[01]' <<<"$fence")" "not permitted" "but their own"
like "$fence" "0,1$" "and are told which these are"

# Private directories.
xc --node 1 touch /tmp/mark /dev/shm/mark
exits "/tmp is a node's own" 1 xc --node 2 test -e /tmp/mark
exits "/dev/shm is a node's own" 1 xc --node 2 test -e /dev/shm/mark
ok "/shared is the same on all nodes" xc --node 2 test -x /shared/sum
is "$(xc --node 2 hostname)" n2 "a node has a host name of its own"

# A clock that is wrong by an hour, in one client.
skewed=$(($(xc --skew -3600 date +%s) - $(date +%s)))
ok "--skew sets a client's clock back" test "$skewed" -ge -3601 -a "$skewed" -le -3590
ok "a client with a wrong clock is served" xc --skew 5 squeue

# Pausing, cutting.
xc --node 2 sh -c 'while :; do date +%s%N >/shared/home/alice/tick; done' </dev/null >/dev/null 2>&1 &
poll 5 test -s "$shared/home/alice/tick"
ok "a node can be paused" mc pause-node 2
tick=$(cat "$shared/home/alice/tick")
like "$(mc status)" $'n2 +[0-9.]+ +paused' "status says so"
exits "nothing happens on it then" 1 poll 1 eval "[[ \$(cat '$shared/home/alice/tick') != '$tick' ]]"
ok "it can be resumed" mc resume-node 2
ok "and continues" poll 5 eval "[[ \$(cat '$shared/home/alice/tick') != '$tick' ]]"
mc cut-node 2
like "$(mc status)" $'n2 +[0-9.]+ +cut' "a node can be cut off"
ok "slurmctld notices it" poll 30 node_is 2 'down\*?|idle\*|unknown\*?'
mc heal-node 2
ok "a healed node comes back" poll 30 nodes_idle

# A second cluster beside the first.
cluster_up --no-plugins --nodes=1 --gpus=0
second=$CLUSTER
isnt "$(cluster_id "$first")" "$(cluster_id "$second")" "two clusters run at once"
ok "the second has node n1 as well" xc srun --nodes=1 --ntasks=1 sh -c 'test "$(hostname)" = n1'
CLUSTER=$first
ok "while the first runs its own jobs" xc srun --nodes=2 --ntasks=2 true
second_id=$(cluster_id "$second")
CLUSTER=$second
ok "one goes" mc down
left_nothing "$second_id" "$second"
CLUSTER=$first
ok "the other stays" xc srun --nodes=2 --ntasks=2 true

# An interrupted start leaves nothing.
third=$(mktemp -d "${TMPDIR:-/tmp}/bellows-test-XXXXXX")
"$MINICLUSTER" up --no-plugins --dir "$third" >/dev/null 2>&1 &
poll 60 test -e "$third/state/pid.ctl"
third_id=$(cluster_id "$third")
kill -TERM $!
wait $!
is "$?:$(ls "$third/state" 2>/dev/null)" "143:" "an interrupted up ends"
left_nothing "$third_id" "$third"
rm -rf -- "$third"

# The controller dies and comes back; so does a node, with empty directories.
job=$(submit -- --nodelist=n1 --output=/dev/null --wrap 'sleep 100')
poll 10 job_is "$job" RUNNING
# slurmctld writes down what changed only every few seconds.
touch "$shared/running"
xc --user root scontrol update job="$job" comment=running
poll 15 test "$CLUSTER/spool/ctld/job_state" -nt "$shared/running"
ok "slurmctld can be killed" mc stop-ctld --signal KILL
exits "and is gone" 1 mc stop-ctld
ok "it starts again" mc start-ctld
ok "and knows the job" job_is "$job" RUNNING
ok "a node can be killed" mc kill-node 1
like "$(mc status)" $'n1 +[0-9.]+ +dead' "all of it at once"
exits "a dead node can't be entered" 1 xc --node 1 true
ok "it boots again" mc start-node 1
is "$(xc --node 1 sh -c 'echo entered; ls /tmp/mark /dev/shm/mark 2>/dev/null')" entered "without what was in /tmp"
mc exec --user root scancel "$job"
ok "and becomes idle" poll 30 nodes_idle || diag "$(xc sinfo -N -l)"
ok "and runs jobs" xc srun --nodelist=n1 true

# After kill -9 of all sorts of things, down leaves the machine as it was.
mc kill-node 2
mc stop-ctld --signal KILL
xc --node 1 --user root sh -c 'kill -9 -1' >/dev/null 2>&1
xc --user root sh -c 'kill -9 -1' >/dev/null 2>&1
mc pause-node 1
first_id=$(cluster_id "$first")
ok "down works after all that" mc down
left_nothing "$first_id" "$first"
wait
is "$(diff <(echo "$before") <(machine))" "" "devices, Slurm's configuration and the users of the machine are as before"
exits "down without a cluster is an error" 1 "$MINICLUSTER" down --dir /tmp/there-is-none
done_testing

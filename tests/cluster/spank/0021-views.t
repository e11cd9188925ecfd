#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 240
# A job's view of its nodes without any container: temporary space, GPUs, and that nothing stays.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

# A batch script that is gone is noticed when its node registers.
conf=$(mktemp)
printf 'SlurmdTimeout=6\nMessageTimeout=5\n' >"$conf"
cluster_up --nodes=2 --gpus=4 --slurm-conf "$conf"
rm -f "$conf"
home=$CLUSTER/shared/home/alice
chmod 777 "$CLUSTER/shared"
node() { mc exec --user root --node "$1" -- "${@:2}"; }
job=(--framework=plain --gpus=1)

# Temporary space.
xc --user root --node 1 touch /tmp/host /var/tmp/host /dev/shm/host
is "$(xc srun -w n1 "${job[@]}" sh -c "ls -A /tmp /var/tmp /dev/shm | grep -vE '$tmp_strangers' | xargs")" \
  "/dev/shm: /tmp: /var/tmp:" "a job's temporary directories are empty"
is "$(xc srun -w n1 sh -c 'ls /tmp /var/tmp /dev/shm | grep -c host')" 3 "a plain job has the host's"
cat >"$home/share.sh" <<'S'
#!/bin/bash
for dir in /tmp /var/tmp /dev/shm; do echo "of $SLURM_JOB_ID" >$dir/mine; done
srun --ntasks=2 --overlap cat /tmp/mine /var/tmp/mine /dev/shm/mine | sort | uniq -c
srun --ntasks=1 touch /tmp/by-a-step
ls /tmp/by-a-step
stat -c '%a %U' /tmp /var/tmp /dev/shm | sort | uniq -c
touch ready
until [[ -e go ]]; do sleep 0.1; done
S
id=$(submit -- -w n1 --framework=plain --gpus=2 --output=share.out share.sh)
ok "a batch script and its steps share them" poll 30 test -e "$home/ready"
is "$(tr -s ' ' <"$home/share.out" | xargs -d'\n' | tr -s ' ')" \
  " 6 of $id /tmp/by-a-step 3 1777 root" "with the usual mode and owner"
other=$(xc --user bob srun -w n1 "${job[@]}" sh -c 'cat /tmp/mine /var/tmp/mine /dev/shm/mine 2>&1')
is "$(grep -c 'No such file' <<<"$other")" 3 "a job of another user on the node does not see them"
is "$(node 1 sh -c 'cat /tmp/mine /var/tmp/mine /dev/shm/mine 2>&1' | grep -c 'No such file')" 3 \
  "nor does the host"
exits "nor can it reach them through /proc" 1 xc --user bob srun -w n1 "${job[@]}" \
  sh -c 'ls /proc/[0-9]*/root/tmp/mine 2>/dev/null | grep mine'
is "$(views_of 1)" "/run/bellows/views/$id" "the node keeps one job's views"
touch "$home/go"
ok "the job ends" poll 30 job_is "$id" COMPLETED
ok "its views go with it" poll 10 no_views 1
ok "and nothing of them stays mounted" nothing_mounted 1

# The epilogs of a step's tasks, which slurmstepd starts beside them.
cat >"$home/epilog.sh" <<'S'
#!/bin/bash
ls /tmp >>seen-by-epilog
[[ ! -e /sys/fs/cgroup/cgroup.controllers ]] || exit 0
setsid sleep 1000 </dev/null >/dev/null 2>&1 &
echo $! >>left-by-epilog
S
chmod 755 "$home/epilog.sh"
lives() { node 1 sh -c "grep -qs ^State:.S /proc/$1/status || exit 1"; } # PID
cat >"$home/epilogs.sh" <<'S'
#!/bin/bash
srun --task-epilog=$PWD/epilog.sh touch /tmp/of-the-job
touch epilogs.ready
until [[ -e epilogs.go ]]; do sleep 0.1; done
S
id=$(submit -- -w n1 "${job[@]}" --output=epilogs.out epilogs.sh)
ok "a task has an epilog" poll 30 test -e "$home/epilogs.ready"
is "$(grep -vE "$tmp_strangers" "$home/seen-by-epilog")" of-the-job "which has the job's view"
if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
  # Until 24.11 Slurm ends it with the step. In 26.05 it keeps the step from ending, and drains the node.
  skip "what it leaves in a session of its own" "on cgroup v2 nothing of a task's epilog may stay"
else
  left=$(head -n 1 "$home/left-by-epilog")
  ok "and leaves a process in a session of its own" lives "$left"
  node 1 grep -E "/job_$id(/|\$)" "/proc/$left/cgroup" >"$CLUSTER/cgroups"
  isnt "$(<"$CLUSTER/cgroups")" "" "in the job's cgroups"
fi
touch "$home/epilogs.go"
ok "the job ends" poll 30 job_is "$id" COMPLETED
[[ -z ${left-} ]] || exits "and with it what its epilogs left" 1 lives "$left"
rm "$home/seen-by-epilog"
xc srun -w n1 --task-epilog="$home/epilog.sh" true
is "$(grep -vE "$tmp_strangers" "$home/seen-by-epilog")" host "a plain job's epilog is on the host, as the job is"
[[ -z ${left-} ]] || node 1 kill "$(tail -n 1 "$home/left-by-epilog")" 2>/dev/null

# A new run of a job begins with empty space.
printf '#!/bin/bash\nls -A /tmp | grep -vE "%s"; touch /tmp/old; [[ -n ${SLURM_RESTART_COUNT:-} ]] || sleep 300\n' "$tmp_strangers" \
  >"$home/again.sh"
id=$(submit -- -w n1 "${job[@]}" --requeue --output=again.out again.sh)
ok "a job leaves a file" poll 30 node 1 sh -c "ls /proc/[0-9]*/root/tmp/old"
ok "and is requeued" xc scontrol requeue "$id"
# shellcheck disable=SC2317
begin_soon() { xc --user root scontrol update "jobid=$id" starttime=now+2 && job_is "$id" PENDING; }
poll 20 begin_soon
ok "runs again" poll 60 job_is "$id" COMPLETED
is "$(grep -v -e slurmstepd -e "error: \*\*\*" "$home/again.out")" "" "and does not find it"

# Sizes.
spank_args "tmp_size=8M shm_size=4M"
is "$(xc srun -w n1 "${job[@]}" sh -c 'df -m --output=size /tmp /var/tmp /dev/shm | xargs')" \
  "1M-blocks 8 8 4" "the administrator limits the space"
is "$(xc srun -w n1 "${job[@]}" --container-tmp=16M sh -c 'df -m --output=size /tmp | xargs')" \
  "1M-blocks 16" "and a job may say how much it needs"
like "$(xc srun -w n1 "${job[@]}" sh -c 'head -c 9000000 /dev/zero >/tmp/big' 2>&1)" \
  'No space left' "a full /tmp is an error of the job's"
spank_args ""

# GPUs: what is not the job's can't be opened, and looks it.
show='for i in 0 1 2 3; do stat -c %F /dev/nvidia$i; done | sort | uniq -c | xargs'
is "$(xc srun -w n1 --framework=plain --gpus=2 sh -c "$show")" \
  "2 character special file 2 regular empty file" "a job sees its own GPUs as GPUs"
is "$(xc srun -w n1 sh -c "$show")" "4 character special file" "a plain job sees all of them"
probe='for i in 0 1 2 3; do (: <>/dev/nvidia$i) 2>&1; done | sed "s/.*: //" | sort | uniq -c | xargs -d"\n"'
is "$(xc srun -w n1 --framework=plain --gpus=2 sh -c "$probe" | tr -s ' ')" \
  " 2 No such device or address 2 Permission denied" "and can open only these"
cat >"$home/steps.sh" <<'S'
#!/bin/bash
one='for i in 0 1 2 3; do [ -c /dev/nvidia$i ] && echo $i; done'
srun --exact --ntasks=1 --gpus=1 sh -c "$one; sleep 2" >first.out &
srun --exact --ntasks=1 --gpus=1 sh -c "$one; sleep 2" >second.out &
wait
srun --ntasks=3 --gpus-per-task=1 sh -c "$one" | sort >each.out
S
ok "steps with GPUs of their own run" xc sbatch --wait -w n1 --framework=plain --gpus=3 \
  --output=steps.out steps.sh
is "$(cat "$home/first.out" "$home/second.out" | sort | uniq | wc -l)" 2 "and see them only"
is "$(xargs <"$home/each.out")" "0 1 2" "tasks bound to GPUs see one each"

# The fence is proven.
sed -i 's/ConstrainDevices=yes/ConstrainDevices=no/' "$CLUSTER/etc/cgroup.conf"
mc kill-node 2
mc start-node 2
poll 30 node_is 2 idle
like "$(xc srun -w n2 "${job[@]}" true 2>&1)" \
  'bellows: container: checking the fence around GPUs: .*/dev/nvidia[0-9].*ConstrainDevices=yes' \
  "where Slurm does not fence GPUs, a job with GPUs is not started, and told why"
like "$(xc env SLURM_GPUS_ON_NODE=4 srun -w n2 "${job[@]}" true 2>&1)" 'checking the fence' \
  "a forged number of GPUs changes nothing"
# Where Slurm gives none it takes the variable away, but only one of two with the same name.
cc -o "$CLUSTER/shared/forge" "$TAP_HOME/forge.c" -lslurm || bail "the forging client does not compile"
forged() { # what the script of a forged job says
  local id
  id=$(xc "$CLUSTER/shared/forge" vision node:n2 _SLURM_SPANK_OPTION_bellows_container=verbose \
    env:SLURM_GPUS_ON_NODE=4 env:SLURM_GPUS_ON_NODE=4)
  poll 30 job_is "$id" '(COMPLETED|FAILED)'
  cat "$home/slurm-$id.out"
}
like "$(forged)" 'checking the fence around GPUs: .*Slurm gave this step 0 GPUs here, but 4' \
  "nor one where Slurm gave none"
spank_args "require_fence=no"
like "$(forged)" 'SLURM_GPUS_ON_NODE=4' "though it reaches the node"
ok "unless the administrator wants it" xc srun -w n2 "${job[@]}" true
spank_args ""
sed -i 's/ConstrainDevices=no/ConstrainDevices=yes/' "$CLUSTER/etc/cgroup.conf"

# Nothing that dies leaves anything behind.
cat >"$home/long.sh" <<'S'
#!/bin/bash
touch /tmp/mine long.ready
sleep 300
S
id=$(submit -- -w n1 "${job[@]}" --no-requeue --output=long.out long.sh)
poll 30 test -e "$home/long.ready"
stepds() { node 1 pgrep -f "slurmstepd: \[$id\." || true; }
# shellcheck disable=SC2046
node 1 kill -9 $(stepds)
signal=KILL
# A later slurmd that is killed has forgotten that the job's prolog is done, and fails its new steps.
slurm_is_from 23.02 && signal=TERM
node 1 pkill -$signal -x slurmd
poll 10 node 1 sh -c '! pgrep -x slurmd'
ok "kill -9 of its slurmstepds leaves a job's views behind" node 1 test -e "/run/bellows/views/$id"
node 1 slurmd -N n1
ok "a starting slurmd collects what was left" poll 20 no_views 1
ok "and unmounts it" nothing_mounted 1
ok "the job is over" poll 60 job_is "$id" '(FAILED|NODE_FAIL|CANCELLED|COMPLETED)'
poll 30 node_is 1 idle
is "$(xc srun -w n1 "${job[@]}" sh -c "ls -A /tmp | grep -vE '$tmp_strangers'; echo ran")" ran "the next job has empty space"

# A running job survives slurmd.
rm -f "$home/long.ready"
id=$(submit -- -w n1 "${job[@]}" --output=long.out long.sh)
poll 30 test -e "$home/long.ready"
signal=KILL
# A later slurmd that is killed has forgotten that the job's prolog is done, and fails its new steps.
slurm_is_from 23.02 && signal=TERM
node 1 pkill -$signal -x slurmd
poll 10 node 1 sh -c '! pgrep -x slurmd'
node 1 slurmd -N n1
poll 20 node_is 1 '(mixed|allocated)' || diag "the job said: $(<"$home/long.out")"
is "$(xc srun --jobid="$id" --overlap ls /tmp/mine)" /tmp/mine "a new slurmd keeps a running job's views"
xc scancel "$id"
ok "which go with the job" poll 30 no_views 1
done_testing

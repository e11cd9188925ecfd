#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 360
# Whatever dies at whatever moment while a container is built: the next job on the node starts clean,
# and nothing stays mounted in any namespace, bound to a loop device or hanging about.
# BELLOWS_LONG=1: each kind of death at each phase.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

conf=$(mktemp)
printf 'SlurmdTimeout=6\nMessageTimeout=5\nKillWait=2\n' >"$conf"
container_cluster_up "" --nodes=1 --gpus=2 --slurm-conf "$conf"
rm -f "$conf"
home=$CLUSTER/shared/home/alice
# A name of its own: the machine's loop devices are not only ours.
name=${CLUSTER##*/}
# shellcheck disable=SC2154
image=$images/$name.sqsh
mv "$images/busybox.sqsh" "$image"
node() { mc exec --user root --node 1 -- "$@"; }
options=(--framework=plain --gpus=1 --container-image="$image")
say='cat /etc/environment; ls -A /tmp | grep -v pmix; touch /tmp/mine'
site() { spank_args "image_dirs=$images $*"; }

# Each mount namespace in which a process of the node lives, with how much it has mounted.
mounted() {
  node sh -c 'for p in /proc/[0-9]*; do
    ns=$(readlink $p/ns/mnt) && [ "$p" != /proc/$$ ] && echo "$ns $(wc -l <$p/mountinfo)"
  done 2>/dev/null | sort -u'
}
loops() { grep -lsF "$name" /sys/block/loop*/loop/backing_file; }
# Of slurmstepd and its children before their program starts, watchdogs too; a zombie is one as well.
strays() { node pgrep -x slurmstepd; }
nothing_left() {
  [[ $(mounted) == "$clean" ]] && no_views 1 && ! loops && ! strays
}
show_left() {
  diag "mounted: $(mounted | tr '\n' ';') instead of $clean; views: $(views_of 1); loops: $(loops)"
  diag "processes: $(node ps -eo pid,ppid,stat,wchan:20,args | grep -E 'slurm|sleep|defunct')"
}
leaves_nothing() { # NAME
  if poll 15 nothing_left; then pass "$1"; else
    show_left
    fail "$1"
  fi
}

# A job without a script, in whose steps the container is built: sets $id.
allocate() {
  id=$(xc salloc --no-shell "${options[@]}" -n2 2>&1 | sed -n 's/.*Granted job allocation //p')
  [[ -n $id ]] || bail "no allocation"
}
step() { xc timeout "$(seconds 40)" srun --jobid="$id" --overlap "$@"; }
paused() { node ps -eo pid,stat,comm | awk '$2 ~ /^T/ && $3 == "slurmstepd" { print $1; n++ } END { exit !n }'; }
parent() { node ps -o ppid= -p "$1" | tr -d ' '; }
# A job whose next step stops where that phase begins; the second time, where it is the container's
# and not that of the job's view of the host.
will_stop() { # PHASE[ OF THE CONTAINER] SECONDS-OF-A-PHASE
  local phase=${1% of the container}
  allocate
  [[ $phase == "$1" ]] || step -n1 --container-image=/ true || bail "no step on the host"
  site "phase_seconds=$(seconds "$2") pause_at=${phase// /_}"
}
# Sets $task, stopped there.
building() { # PHASE[ OF THE CONTAINER] [SECONDS-OF-A-PHASE]
  will_stop "$1" "${2:-30}"
  step -n1 sh -c "$say" >"$home/first.out" 2>&1 &
  first=$!
  poll 20 paused || { show_left; bail "no task stops at: $1"; }
  task=$(paused)
  site ""
}
start_slurmd() {
  node slurmd -N n1 2>>"$CLUSTER/log/boot-n1.log"
  poll 30 node_is 1 '(idle|mixed|allocated)'
}
kill_slurmd() {
  node pkill -9 -x slurmd
  poll 10 node sh -c '! pgrep -x slurmd'
}
over() {
  xc scancel "$id"
  wait "$first"
  poll 30 node_is 1 idle
}
# srun gives a slurmstepd that is gone half a minute to come back.
forget_first() { xc --user root pkill -9 -x srun; }
# The step in the background waits for the lock, or waited for nothing.
waits_or_ended() { # PID
  ! kill -0 "$1" || node ps -eo comm,wchan:20 | grep -q 'slurmstepd.*nanosleep'
}
# Some phases come twice, and it stops at both.
# shellcheck disable=SC2317
goes_on() {
  ! node kill -CONT "$task" || ! kill -0 "$first"
}
has_watchdog() { [[ -n $(node pgrep -P "$1") ]]; }

# The ways to die.
die_task() { # The step that waits behind it builds; without a lock to wait for it builds at once.
  step -n1 sh -c "$say" >"$home/second.out" 2>&1 &
  local second=$! status=0
  poll 5 waits_or_ended "$second" || diag "the second step does neither wait nor end"
  node kill -9 "$task"
  ! wait "$first" || fail "$1: the step of a killed task does not succeed"
  wait "$second" || status=$?
  is "$status $(head -n 1 "$home/second.out")" "0 IMAGE_SAYS=hello" "$1: kill -9 of the task: the next step builds"
  over
}
die_slurmstepd() {
  node kill -9 "$(parent "$task")"
  # Nobody reads any more what the watchdog says, and it must end the task all the same.
  if has_watchdog "$task"; then
    ok "$1: a task without its slurmstepd is ended" poll 10 node sh -c "! kill -0 $task"
  else
    node kill -9 "$task" 2>/dev/null
  fi
  is "$(step -n1 sh -c "$say" 2>&1 | head -n 1)" "IMAGE_SAYS=hello" "$1: kill -9 of slurmstepd: the next step builds"
  forget_first
  over
}
die_slurmd() {
  kill_slurmd
  start_slurmd
  poll 30 goes_on
  wait "$first"
  is "$(head -n 1 "$home/first.out")" "IMAGE_SAYS=hello" "$1: kill -9 of slurmd: the new one lets the step go on"
  over
}
die_all() {
  # shellcheck disable=SC2046
  node kill -9 $(node pgrep -x slurmstepd) 2>/dev/null
  kill_slurmd
  start_slurmd
  pass "$1: kill -9 of all of Slurm"
  forget_first
  over
}
die_node() {
  mc kill-node 1
  mc start-node 1
  pass "$1: the node is lost"
  forget_first
  over
  clean=$(mounted)
}
crash() { # WHAT PHASE
  building "$2" "$([[ $1 != slurmstepd ]] || echo 4)"
  "die_$1" "$2"
  leaves_nothing "$2: $1: nothing is left"
  is "$(xc srun "${options[@]}" sh -c "$say" 2>&1)" "IMAGE_SAYS=hello" "$2: $1: the next job starts clean"
}

# The phases, from the plugin itself.
report=$(xc srun "${options[@]}" --container-verbose true 2>&1)
mapfile -t phases < <(sed -n 's/.*bellows: container: \(.*\): [0-9]* us$/\1/p' <<<"$report" | awk '!seen[$0]++')
ok "the set-up has its phases" test "${#phases[@]}" -ge 16
poll 10 no_views 1
clean=$(mounted)
is "$(wc -l <<<"$clean")" 1 "without a job the node has one mount namespace"
leaves_nothing "and nothing of a job's"

# Tasks that come at once.
built=""
for _ in {1..20}; do
  built+=$(xc srun "${options[@]}" -n8 --container-verbose true 2>&1 | grep -c 'mounting the image')
done
is "$built" "$(printf '1%.0s' {1..20})" "of eight tasks one builds, twenty times"
leaves_nothing "and they leave nothing"

# A phase that takes too long.
slow=("checking the fence around GPUs" "making the job's temporary space" "mounting the image"
  "keeping the view of the container" "joining the container" "setting the environment")
for phase in "${slow[@]}"; do
  will_stop "$phase" 1
  said=$(step -n1 sh -c "$say" 2>&1)
  isnt "$?" 0 "$phase: a task that does not come on is ended"
  site ""
  like "$said" "bellows: container: ${phase% of the container} took longer than $(seconds 1) s" "$phase: and its user told why"
  xc scancel "$id"
  poll 30 node_is 1 idle
  leaves_nothing "$phase: nothing is left of it"
done

# A file server that dies under a container that others have built.
dead=$CLUSTER/shared/dead
alive=$CLUSTER/shared/alive
mkdir "$dead"
touch "$alive"
node mknod "$CLUSTER/shared/fuse" c 10 229
node python3 "$TAP_HOME/dead_server.py" "$dead" "$alive" "$CLUSTER/shared/fuse" &
server=$!
joined() { step -n1 --container-mounts="$dead:/dead" --container-workdir="$1" pwd 2>&1; }
if poll 10 node mountpoint -q "$dead"; then
  allocate
  site "phase_seconds=$(seconds 2)"
  is "$(joined /) $(joined /dead)" "/ /dead" "a file system that answers"
  rm "$alive"
  node timeout -s KILL 2 stat "$dead" >/dev/null
  like "$(joined /dead)" "bellows: container: joining the container took longer than $(seconds 2) s, so the task was ended; see whether the file system it needs answers" \
    "who joins does not wait for a dead one"
  is "$(joined /)" / "and harms nobody else"
  xc scancel "$id"
  poll 30 node_is 1 idle
  site ""
  node pkill -9 -f "dead_server.py $dead"
  node umount -l "$dead"
else
  skip "a file server that dies" "no FUSE here"
fi
wait "$server"
leaves_nothing "and nothing is left of it"

# No room to keep views in: some names fit and others not, wherever the set-up is.
node sh -c 'dd if=/dev/zero of=/run/bellows/views/full bs=64k' 2>/dev/null
like "$(xc timeout "$(seconds 20)" srun "${options[@]}" sh -c "$say" 2>&1)" "IMAGE_SAYS=hello|container: .*No space left" \
  "a full tmpfs: the job runs or says why it can't"
node rm /run/bellows/views/full
leaves_nothing "and leaves nothing"
refused=0
for inodes in ${BELLOWS_LONG:+2 4 5 7 8 10 11} 3 6 9 12; do
  node mount -o "remount,nr_inodes=$inodes" /run/bellows/views
  said=$(xc timeout "$(seconds 20)" srun "${options[@]}" sh -c "$say" 2>&1)
  [[ $said == "IMAGE_SAYS=hello" ]] || {
    like "$said" "container: .*No space left" "room for $inodes names: says why"
    refused=$((refused + 1))
  }
  leaves_nothing "room for $inodes names: nothing is left"
done
ok "there was room for too few and for enough" test "$refused" -ge 2 -a "$refused" -le 8
node mount -o remount,nr_inodes=0 /run/bellows/views

# Requeued while it builds.
printf '#!/bin/bash\nsrun -n1 sh -c "%s"\n' "$say" >"$home/again.sh"
site "pause_at=mounting_the_image"
id=$(submit -- "${options[@]}" --requeue --output=again.out again.sh)
ok "a job builds" poll 20 paused
site ""
ok "is requeued" xc scontrol requeue "$id"
# Only when its last run has completed does Slurm set the start time by itself.
# shellcheck disable=SC2317
begin_soon() { job_is "$id" PENDING && xc --user root scontrol update "jobid=$id" starttime=now+1; }
poll 20 begin_soon
ok "runs again" poll 40 job_is "$id" COMPLETED
is "$(grep -v -e slurmstepd -e srun "$home/again.out")" "IMAGE_SAYS=hello" "and starts clean"
leaves_nothing "and leaves nothing"

# The matrix.
phases+=("making the job's temporary space of the container" "keeping the view of the container")
for i in "${!phases[@]}"; do
  for what in task slurmstepd slurmd all node; do
    case ${BELLOWS_LONG:+long-}$what$i in
      task[08] | task1[0249] | slurmstepd6 | slurmstepd1[15] | slurmd9 | all13 | node10) ;;
      long-task* | long-slurm* | long-all*[0369] | long-node*[27]) ;;
      *) continue ;;
    esac
    crash "$what" "${phases[i]}"
  done
done
done_testing

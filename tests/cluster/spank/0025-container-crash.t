#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 360
# Whatever dies at whatever moment while a container is built: the next job on the node starts clean,
# and nothing stays mounted in any namespace, bound to a loop device or hanging about.
# BELLOWS_LONG=1: each kind of death at each phase.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

# Most of it is waiting, so several nodes go through the list of parts, each by itself.
nodes=3
conf=$(mktemp)
# A new slurmd must be there before Slurm gives the node up, and a slurmstepd before srun gives up its launch.
printf 'SlurmdTimeout=%s\nMessageTimeout=%s\nKillWait=2\nTaskProlog=/bin/true\n' \
  "$(seconds 6)" "$(seconds 5)" >"$conf"
container_cluster_up "" "--nodes=$nodes" --gpus=2 --slurm-conf "$conf"
rm -f "$conf"
home=$CLUSTER/shared/home/alice
plugstack=$(<"$CLUSTER/etc/plugstack.conf")
# Each member's own, and there again after its node was lost.
for member in ctl $(seq -f n%g "$nodes"); do echo "$plugstack" >"$CLUSTER/spool/$member/plugstack.conf"; done
echo "include /run/slurmd/plugstack.conf" >"$CLUSTER/etc/plugstack.conf"

# What follows is about this node.
use_node() { # I
  at=$1
  # A name of its own: the machine's loop devices are not only ours.
  name=${CLUSTER##*/}-$at
  # shellcheck disable=SC2154
  image=$images/$name.sqsh
  cp "$images/busybox.sqsh" "$image"
  # As fake root, since a step in a container then has all phases.
  options=(--framework=plain --gpus=1 "--nodelist=n$at" --container-image="$image" --container-remap-root)
}
node() { mc exec --user root --node "$at" -- "$@"; }
say="cat /etc/environment; ls -A /tmp | grep -vE '$tmp_strangers'; touch /tmp/mine"
site() { echo "$plugstack $*" >"$CLUSTER/spool/n$at/plugstack.conf"; }

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
  [[ $(mounted) == "$clean" ]] && no_views "$at" && ! loops && ! strays
}
show_left() {
  diag "mounted: $(mounted | tr '\n' ';') instead of $clean; views: $(views_of "$at"); loops: $(loops)"
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
  # With it the job itself has its slurmstepd here.
  poll 10 node test -e "/run/bellows/views/$id/alive"
}
# --quiet: without a word of srun's own, that it waits for the node say.
step() { xc timeout "$(seconds 40)" srun --quiet --jobid="$id" --overlap "$@"; }
paused() { node ps -eo pid,stat,comm | awk '$2 ~ /^T/ && $3 == "slurmstepd" { print $1; n++ } END { exit !n }'; }
# What stops may be the step's slurmstepd itself.
slurmstepd_of() { # PID
  local parent
  parent=$(node ps -o ppid= -p "$1" | tr -d ' ')
  if [[ $(node ps -o comm= -p "$parent") == slurmstepd ]]; then echo "$parent"; else echo "$1"; fi
}
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
  step -n1 sh -c "$say" >"$home/first$at.out" 2>&1 &
  first=$!
  poll 20 paused || { show_left; bail "no task stops at: $1"; }
  task=$(paused)
  site ""
}
start_slurmd() {
  node slurmd -N "n$at" 2>>"$CLUSTER/log/boot-n$at.log"
  poll 30 node_is "$at" '(idle|mixed|allocated)'
}
kill_slurmd() {
  node pkill -9 -x slurmd
  poll 10 node sh -c '! pgrep -x slurmd'
}
over() {
  xc scancel "$id"
  wait "$first"
  poll 30 node_is "$at" idle
}
# srun gives a slurmstepd that is gone half a minute to come back.
forget_first() { xc --user root pkill -9 -f "^srun --quiet --jobid=$id "; }
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
  step -n1 sh -c "$say" >"$home/second$at.out" 2>&1 &
  local second=$! status=0
  poll 5 waits_or_ended "$second" || diag "the second step does neither wait nor end"
  node kill -9 "$task"
  ! wait "$first" || fail "$1: the step of a killed task does not succeed"
  wait "$second" || status=$?
  is "$status $(head -n 1 "$home/second$at.out")" "0 IMAGE_SAYS=hello" "$1: kill -9 of the task: the next step builds"
  over
}
die_slurmstepd() {
  local watched=""
  ! has_watchdog "$task" || watched=1
  node kill -9 "$(slurmstepd_of "$task")"
  # Nobody reads any more what the watchdog says, and it must end the task all the same.
  if [[ -n $watched ]]; then
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
  # The new one would wait for the answer of a slurmstepd that is stopped.
  [[ $(slurmstepd_of "$task") != "$task" ]] || node kill -CONT "$task"
  start_slurmd
  poll 30 goes_on
  wait "$first"
  is "$(head -n 1 "$home/first$at.out")" "IMAGE_SAYS=hello" "$1: kill -9 of slurmd: the new one lets the step continue"
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
die_job() { # Nobody is left to clear up; the next job's prolog does.
  # shellcheck disable=SC2046
  node kill -9 $(node pgrep -x slurmstepd) 2>/dev/null
  forget_first
  over
  ok "$1: kill -9 of the job's slurmstepds: another job runs" xc srun "${options[@]}" true
}
die_node() {
  mc kill-node "$at"
  mc start-node "$at"
  pass "$1: the node is lost"
  forget_first
  over
  clean=$(mounted)
}
crash() { # WHAT PHASE
  building "$2" "$([[ $1 != slurmstepd ]] || echo 4)"
  "die_$1" "$2"
  leaves_nothing "$2: $1: nothing is left"
  is "$(xc srun --quiet "${options[@]}" sh -c "$say" 2>&1)" "IMAGE_SAYS=hello" "$2: $1: the next job starts clean"
}

# Tasks that come at once.
at_once() {
  local built=""
  for _ in {1..20}; do
    built+=$(xc srun "${options[@]}" -n8 --container-verbose true 2>&1 | grep -c 'mounting the image')
  done
  is "$built" "$(printf '1%.0s' {1..20})" "of eight tasks one builds, twenty times"
  leaves_nothing "and they leave nothing"
}

# A phase that takes too long.
too_slow() { # PHASE
  local said
  will_stop "$1" 1
  said=$(step -n1 sh -c "$say" 2>&1)
  isnt "$?" 0 "$1: a task that does not come on is ended"
  site ""
  like "$said" "bellows: container: ${1% of the container} took longer than $(seconds 1) s" "$1: and its user told why"
  xc scancel "$id"
  poll 30 node_is "$at" idle
  leaves_nothing "$1: nothing is left of it"
}

# A file server that dies under a container that others have built.
in_dead() { step -n1 --container-name=dead --container-mounts="$dead:/dead" --container-workdir="$1" "${@:2}" 2>&1; }
joined() { in_dead "$1" pwd; } # DIRECTORY
dead_server() {
  local dead=$CLUSTER/shared/dead alive=$CLUSTER/shared/alive server
  mkdir "$dead"
  touch "$alive"
  node mknod "$CLUSTER/shared/fuse" c 10 229
  node python3 "$TAP_HOME/dead_server.py" "$dead" "$alive" "$CLUSTER/shared/fuse" &
  server=$!
  if poll 10 node mountpoint -q "$dead"; then
    allocate
    site "phase_seconds=$(seconds 2)"
    in_dead / sleep 7531 >/dev/null &
    poll 20 node pgrep -f "sleep 7531"
    is "$(joined /) $(joined /dead)" "/ /dead" "a file system that answers"
    rm "$alive"
    node timeout -s KILL 2 stat "$dead" >/dev/null
    like "$(joined /dead)" "bellows: container: going to the working directory took longer than $(seconds 2) s, so the task was ended; see whether the file system it needs answers" \
      "who joins does not wait for a dead one"
    is "$(joined /)" / "and harms nobody else"
    xc scancel "$id"
    poll 30 node_is "$at" idle
    site ""
    node pkill -9 -f "dead_server.py $dead"
    node umount -l "$dead"
  else
    skip "a file server that dies" "no FUSE here"
  fi
  wait "$server"
  leaves_nothing "and nothing is left of it"
}

# No room to keep views in: some names fit and others not, wherever the set-up is.
no_room() {
  local refused=0 fitted=0 inodes said
  node sh -c 'dd if=/dev/zero of=/run/bellows/views/full bs=64k' 2>/dev/null
  like "$(xc timeout "$(seconds 20)" srun --quiet "${options[@]}" sh -c "$say" 2>&1)" "IMAGE_SAYS=hello|container: .*No space left" \
    "a full tmpfs: the job runs or says why it can't"
  node rm /run/bellows/views/full
  leaves_nothing "and leaves nothing"
  for inodes in ${BELLOWS_LONG:+2 4 5 7 8 10 11 13} 3 6 9 12 15; do
    node mount -o "remount,nr_inodes=$inodes" /run/bellows/views
    said=$(xc timeout "$(seconds 20)" srun --quiet "${options[@]}" sh -c "$say" 2>&1)
    if [[ $said == "IMAGE_SAYS=hello" ]]; then
      fitted=$((fitted + 1))
    else
      like "$said" "container: .*No space left" "room for $inodes names: says why"
      refused=$((refused + 1))
    fi
    leaves_nothing "room for $inodes names: nothing is left"
  done
  ok "there was room for too few and for enough" test "$refused" -ge 2 -a "$fitted" -ge 1
  node mount -o remount,nr_inodes=0 /run/bellows/views
}

# Only when its last run has completed does Slurm set the start time by itself.
# shellcheck disable=SC2317
begin_soon() { job_is "$id" PENDING && xc --user root scontrol update "jobid=$id" starttime=now+1; }
requeued() {
  printf '#!/bin/bash\nsrun -n1 sh -c "%s"\n' "$say" >"$home/again.sh"
  site "pause_at=mounting_the_image"
  id=$(submit -- "${options[@]}" --requeue --output=again.out again.sh)
  ok "a job builds" poll 20 paused
  site ""
  ok "is requeued" xc scontrol requeue "$id"
  poll 20 begin_soon
  ok "runs again" poll 40 job_is "$id" COMPLETED
  is "$(grep -v -e slurmstepd -e srun -e 'error: \*\*\*' "$home/again.out")" "IMAGE_SAYS=hello" "and starts clean"
  leaves_nothing "and leaves nothing"
}

# The parts, longest first.
parts=()
part() { parts+=("${*@Q}"); }
# The next one's number, to whichever node asks first.
next_part() {
  (
    flock 9
    read -r number <"$CLUSTER/next"
    echo $((number + 1)) >"$CLUSTER/next"
    echo "$number"
  ) 9<>"$CLUSTER/next.lock"
}
work() { # NODE
  local number
  use_node "$1"
  poll 10 no_views "$at"
  clean=$(mounted)
  is "$(wc -l <<<"$clean")" 1 "without a job node $at has one mount namespace"
  leaves_nothing "and nothing of a job's"
  while number=$(next_part) && ((number < ${#parts[@]})); do eval "${parts[number]}"; done
  echo "# all done"
}
# A node's points, as points of this file.
count_points() { # FILE
  local line ended=""
  while IFS= read -r line; do
    case $line in
      "# all done") ended=1 && continue ;;
      "ok "*) tap_points=$((tap_points + 1)) ;;
      "not ok "*) tap_points=$((tap_points + 1)) tap_failed=$((tap_failed + 1)) ;;
      *) echo "$line" && continue ;;
    esac
    echo "${line%% [0-9]*} $tap_points - ${line#* - }"
  done <"$1"
  [[ -n $ended ]] || fail "$1: continues to the end"
}

# The phases, from the plugin itself, and those that it does not count.
use_node 1
report=$(xc srun "${options[@]}" --container-verbose true 2>&1)
mapfile -t phases < <(sed -n 's/.*bellows: container: \(.*\): [0-9]* us$/\1/p' <<<"$report" | awk '!seen[$0]++')
ok "the set-up has its phases" test "${#phases[@]}" -ge 20
phases+=("making the job's temporary space of the container" "keeping the view of the container"
  "sharing the job's views" "opening the job's views")

part at_once
part no_room
part requeued
part dead_server
in_short() { # VICTIM: PHASE
  case $1 in
    "task: taking up"* | "task: opening"* | "task: mounting the "[su]* | "task: joining the container's"*) ;;
    "task: keeping the view of the container" | "slurmd: mounting the image" | "all: entering"*) ;;
    "slurmstepd: sharing"* | "slurmstepd: joining the job's view" | "slurmstepd: making /dev") ;;
    "slurmstepd: joining the container" | "node: mounting the system"* | "job: keeping the view") ;;
    *) return 1 ;;
  esac
}
for phase in "${phases[@]}"; do
  for what in node job all slurmstepd slurmd task; do
    # There is no task yet.
    [[ $what != task || $phase != "sharing the job's views" ]] || continue
    [[ -n ${BELLOWS_LONG:-} ]] || in_short "$what: $phase" || continue
    part crash "$what" "$phase"
  done
done
for phase in "checking the fence around GPUs" "making the job's temporary space" "mounting the image" \
  "keeping the view of the container" "joining the container" "setting the environment"; do
  part too_slow "$phase"
done
echo 0 >"$CLUSTER/next"
for ((i = 1; i <= nodes; i++)); do
  work "$i" >"$CLUSTER/points$i" &
  workers+=($!)
done
wait "${workers[@]}"
for ((i = 1; i <= nodes; i++)); do count_points "$CLUSTER/points$i"; done
done_testing

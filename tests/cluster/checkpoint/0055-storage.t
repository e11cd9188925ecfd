#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# The file system of the checkpoints fails in the middle of trainings: one turns read-only and is writable
# again later, one hangs for some seconds, one is full. Nobody helps the jobs, and nothing that was committed
# is lost.

# What is mounted here is gone with this test, whatever ends it.
[[ -n ${STORAGE_NAMESPACE:-} ]] || ((EUID != 0)) || STORAGE_NAMESPACE=1 exec unshare --mount "$0" "$@"
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

hangs=8
storage=$(mktemp -d "${BELLOWS_TESTDIR:-/srv}/bellows-storage-XXXXXX")
guard=""
thaw() { fsfreeze --unfreeze "$storage/slow" 2>/dev/null; }
cleanup() {
  local status=$?
  trap - EXIT
  thaw
  [[ -z $guard ]] || kill -- "-$guard" 2>/dev/null
  ( (exit "$status"); tap_end )
  status=$?
  umount "$storage/frail" "$storage/slow" "$storage/full" 2>/dev/null
  rm -rf --one-file-system -- "$storage"
  exit "$status"
}
trap cleanup EXIT

# Members get what is mounted before they start: all of them the same file systems.
for name in frail slow; do
  truncate --size=64M "$storage/$name.img"
  mkdir "$storage/$name"
  { mkfs.ext4 -q "$storage/$name.img" && mount -o loop "$storage/$name.img" "$storage/$name"; } ||
    skip_all "no loop devices, or no ext4"
  rm "$storage/$name.img"
  chmod 1777 "$storage/$name"
done
mkdir "$storage/full"
mount -t tmpfs -o size=4m,mode=1777 none "$storage/full"
chmod 755 "$storage"
cluster_up --nodes=3 --gpus=4
home=$CLUSTER/shared/home/alice

# submit_to FILE-SYSTEM NAME GPUS OPTIONS-OF-RUN OPTION-OF-COUNTER...
submit_to() {
  submit_counter "$2" --gpus="$3" --export=ALL,RUN_OPTIONS="--checkpoint-dir=$storage/$1/$2 $4" \
    -- --steps 10000000 --sleep-us 20000 --save-every 25 "${@:5}"
}
# What is written all the time, the log, would keep the file system from turning read-only.
dies=$(submit_to frail dies 1 --log-size=0)
bears=$(submit_to frail bears 1 --log-size=0 --keep-going)
# Its hang would be called three times.
waits=$(submit_to slow waits 2 --hang-floor=2)
async=$(submit_to slow async 2 --hang-floor=2 --async)
killed=$(submit_to slow killed 2 --hang-floor=2 --async)
filled=$(submit_to full filled 1 "--keep=1 --max-restarts=1")
goes=$(submit_to full goes 1 --keep=1 --keep-going)
for name in dies bears; do kept_in[${!name}]=$storage/frail/$name; done
for name in waits async killed; do kept_in[${!name}]=$storage/slow/$name; done
for name in filled goes; do kept_in[${!name}]=$storage/full/$name; done
for name in dies bears waits async killed filled goes; do
  poll 40 commits_past "${!name}" 49 || bail "$name does not commit: $(out_of "$name")"
done

# As of a server that turns its export read-only. What is being written at the moment forbids it.
poll 20 mount -o remount,ro "$storage/frail" || bail "the file system does not turn read-only"
hurts "$dies" "$bears"
# A frozen file system outlives its mounts.
setsid sh -c "sleep $(seconds 30); fsfreeze --unfreeze '$storage/slow'" 2>/dev/null &
guard=$!
fsfreeze --freeze "$storage/slow"
hung=$(now_us)
hurts "$waits" "$async" "$killed"
kill_one "$killed" counter .
hurts "$filled" "$goes"
dd if=/dev/zero of="$storage/full/filler" bs=4k count=2000 status=none
TAP_LIMIT=10 ok "a launcher answers while the file system hangs" xc bellows status "$waits"
ok "a read-only file system: who does not bear a failed save dies of it" \
  poll 20 grep -q 'after a save had failed: Read-only file system' "$home/dies.out"
ok "a full file system: the program that does not bear it dies of it" \
  poll 20 grep -q 'after a save had failed: No space left' "$home/filled.out"
poll 20 since "$hung" "$hangs"
thaw
poll 20 grep -q 'training continues after' "$home/waits.out"
took "a file system that hangs for $hangs s" "$waits" "$(now_us)"
mount -o remount,rw "$storage/frail"
poll 30 grep -q 'saves work again' "$home/bears.out"
took "a read-only file system, borne" "$bears" "$(now_us)"
poll 10 since "${hurt_at[$filled]}" 10
rm "$storage/full/filler"
poll 60 grep -q 'saves work again' "$home/goes.out"
took "a full file system, borne" "$goes" "$(now_us)"

for name in dies bears waits async killed filled goes; do let_end "$name" "${!name}" 100; done
ends_well waits "$waits" "a file system that hangs"
ends_well async "$async" "a file system that hangs, with saves in the background"
is "$(starts waits) $(starts async)" "1 1" "no rank is considered hung"
like "$(causes "$waits")" 'training waits for the file system of the checkpoints: the agent on n[1-3] has been' \
  "the history tells what training waits for"
like "$(causes "$waits")" 'training continues after [0-9]+ s of waiting for the file system' "and how long"
recovers killed "$killed" "a rank that dies while the file system hangs" 'rank [01] on n[1-3] was killed by signal 9'
unlike "$(out_of waits; out_of async; out_of killed)" 'no progress|the agents did not' "nothing else was wrong"

ends_well bears "$bears" "a read-only file system, borne"
is "$(starts bears) $(grep -c 'could not be saved' "$home/bears.out")" "1 1" "it continues, and is reported once"
recovers dies "$dies" "a read-only file system, not borne" 'after a save had failed: Read-only file system'
like "$(causes "$bears")" 'could not be saved: .*Read-only file system' \
  "the history tells of what happened while it could not be written"
unlike "$(out_of dies; out_of bears)" 'could not be written' "nothing of it is lost"

recovers filled "$filled" "a full file system, not borne" 'after a save had failed: No space left'
ok "it was tried more often than a program is" test "$(grep -c 'No space left on device$' "$home/filled.out")" -gt 3
ends_well goes "$goes" "a full file system, borne"
is "$(starts goes) $(grep -c 'could not be saved' "$home/goes.out")" "1 1" "it continues, and is reported once"
like "$(causes "$goes")" 'could not be saved: .*No space left' "and so does its history"
done_testing

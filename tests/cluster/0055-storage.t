#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# The file system of the checkpoints fails in the middle of trainings: one turns read-only and is writable
# again later, one hangs for some seconds. Nobody helps the jobs, and nothing that was committed is lost.

# What is mounted here is gone with this test, whatever ends it.
[[ -n ${STORAGE_NAMESPACE:-} ]] || ((EUID != 0)) || STORAGE_NAMESPACE=1 exec unshare --mount "$0" "$@"
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$(dirname "$0")/jobs.sh"

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
  umount "$storage/frail" "$storage/slow" 2>/dev/null
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
chmod 755 "$storage"
cluster_up --nodes=2 --gpus=4
home=$CLUSTER/shared/home/alice

# submit_to FILE-SYSTEM NAME GPUS OPTIONS-OF-RUN OPTION-OF-COUNTER...
submit_to() {
  submit_counter "$2" --gpus="$3" --export=ALL,RUN_OPTIONS="--checkpoint-dir=$storage/$1/$2 $4" \
    -- --steps 1000 --sleep-us 20000 --save-every 25 "${@:5}"
}
newest() { # FILE-SYSTEM NAME
  local step
  step=$(readlink "$storage/$1/$2/latest") || { echo 0; return; }
  echo $((10#${step##*step-}))
}
saved_past() { (($(newest "$1" "$2") > $3)); } # FILE-SYSTEM NAME STEP
causes_of() { sed 's/.*"cause":"\([^"]*\)".*/\1/' "$storage/$1/$2/events.jsonl"; }
since() { (($(now_us) - $1 > $2 * 1000000)); } # MICROSECONDS SECONDS
ends_well() { # NAME ID WHAT
  ok "$3: the job ends COMPLETED" poll 60 job_is "$2" COMPLETED
  like "$(log_of "$1")" 'finish step=1000 ' "$3: with the right result"
}

# What is written all the time, the log, would keep the file system from turning read-only.
dies=$(submit_to frail dies 1 --log-size=0)
bears=$(submit_to frail bears 1 --log-size=0 --keep-going)
# Its hang would be called three times.
waits=$(submit_to slow waits 2 --hang-floor=2)
async=$(submit_to slow async 2 --hang-floor=2 --async)
killed=$(submit_to slow killed 2 --hang-floor=2 --async)
for name in dies bears; do poll 40 saved_past frail "$name" 49 || bail "$name does not commit: $(out_of "$name")"; done
for name in waits async killed; do poll 40 saved_past slow "$name" 49 || bail "$name does not commit: $(out_of "$name")"; done

# As of a server that turns its export read-only. What is being written at the moment forbids it.
poll 20 mount -o remount,ro "$storage/frail" || bail "the file system does not turn read-only"
failed=$(now_us)
before=$(newest frail dies)
# A frozen file system outlives its mounts.
setsid sh -c "sleep $(seconds 30); fsfreeze --unfreeze '$storage/slow'" 2>/dev/null &
guard=$!
fsfreeze --freeze "$storage/slow"
hung=$(now_us)
kept=$(newest slow killed)
kill_one "$killed" counter .
TAP_LIMIT=10 ok "a launcher answers while the file system hangs" xc bellows status "$waits"
ok "a read-only file system: who does not bear a failed save dies of it" \
  poll 20 grep -q 'after a save had failed: Read-only file system' "$home/dies.out"
poll 20 since "$hung" "$hangs"
thaw
poll 20 grep -q 'training goes on after' "$home/waits.out"
took "a file system that hangs for $hangs s" "$hung" "the $hangs s are part of it"
poll 20 has_starts killed 2
took "a file system that hangs for $hangs s, and a rank that dies meanwhile" "$hung" "the $hangs s are part of it"
mount -o remount,rw "$storage/frail"
writable=$(now_us)
poll 30 grep -q 'saving works again' "$home/bears.out"
took "a read-only file system, borne" "$writable" "counted from its end"
poll 30 has_starts dies 2
took "a read-only file system, not borne" "$writable" "counted from its end, after $(((writable - failed) / 1000000)) s of it"

ends_well waits "$waits" "a file system that hangs"
ends_well async "$async" "a file system that hangs, with saves in the background"
is "$(starts waits) $(starts async)" "1 1" "nobody is taken for hung"
like "$(causes_of slow waits)" 'training waits for the file system of the checkpoints: the agent on n[12] has been' \
  "the history tells what training waits for"
like "$(causes_of slow waits)" 'training goes on after [0-9]+ s of waiting for the file system' "and how long"
ends_well killed "$killed" "a rank that dies while the file system hangs"
ok "it goes on from what was committed" test "$(last_start killed step)" -ge "$kept"
unlike "$(out_of waits; out_of async; out_of killed)" 'no progress|the agents did not' "nothing else was wrong"

ends_well bears "$bears" "a read-only file system, borne"
is "$(starts bears) $(grep -c 'could not be saved' "$home/bears.out")" "1 1" "it goes on, and is told once"
ends_well dies "$dies" "a read-only file system, not borne"
ok "it goes on from what was committed" test "$(last_start dies step)" -ge "$before"
like "$(causes_of frail bears)" 'could not be saved: .*Read-only file system' \
  "the history tells of what happened while it could not be written"
like "$(xc --node 1 bellows history --checkpoint-dir "$storage/frail/dies" "$dies")" \
  'after a save had failed: Read-only file system' "and so does bellows history"
unlike "$(out_of dies; out_of bears)" 'could not be written' "nothing of it is lost"
done_testing

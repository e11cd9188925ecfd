#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# What another user can do where all keep their checkpoints: directories that he makes first, links, files
# that he plants, locks that he holds; and who may read what a job stores.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/jobs.sh
. "$TAP_HOME/jobs.sh"

impatient_cluster_up --nodes=1 --gpus=8
base=$CLUSTER/shared/checkpoints
policy=$CLUSTER/etc/bellows.yaml
alice=$(stat -c %u:%g "$CLUSTER/shared/home/alice")
as_bob() { xc --user bob --node 1 "$@"; }
short=(--gpus=1 -- --steps 60 --sleep-us 10000 --save-every 20)

# refused NAME WHAT REGEX: the job does not train, and is told why.
refused() {
  local id
  id=$(submit_counter "$1" "${short[@]}")
  poll 40 job_is "$id" FAILED
  is "$(job_field "$id" JobState) $(job_field "$id" ExitCode) $(starts "$1")" "FAILED 3:0 0" "$2: the job is refused"
  like "$(out_of "$1")" "$3" "and is told whose fault it is"
}

# Bob makes Alice's directory before her, and says of each of her jobs that it has finished.
as_bob bash -c 'mkdir -m 777 "$1" && for i in {1..60}; do mkdir -m 777 "$1/$i" && echo >"$1/$i/finished-$i"; done' - "$base/alice"
bob=$(stat -c %u "$base/alice")
refused squatted "a directory that is squatted" "$base/alice belongs to user $bob, who could change"
is "$(find "$base/alice" ! -uid "$bob" | wc -l)" 0 "nothing is written there"
rm -rf "$base/alice"
as_bob bash -c 'mkdir -m 777 "$1" && ln -s "$1" "$2"' - "$base/bobs" "$base/alice"
refused linked "a directory that is a link" "$base/alice is a link or a file"
rm -rf "$base/alice"

# Her own, but each of her jobs has one of bob's in it.
install -d -o "${alice%:*}" -g "${alice#*:}" -m 777 "$base/alice"
as_bob bash -c 'for i in {1..60}; do mkdir -m 777 "$1/$i" && echo >"$1/$i/finished-$i"; done' - "$base/alice"
refused writable "a directory that all may write" "others may write to the checkpoint directory $base/alice .*chmod go-w"
chmod 755 "$base/alice"
refused planted "a directory that was planted" "$base/alice/[0-9]* belongs to user $bob"
rm -rf "$base/alice"

chmod 777 "$base"
refused unsticky "a base where users can rename each other's" "$base has mode 777.*chmod \+t"
like "$(xc bellows check-config "$policy")" "warning: $base has mode 777.*chmod \+t" "check-config warns of it"
chmod 1777 "$base"
unlike "$(xc bellows check-config "$policy")" warning "and of no sticky one"

# Locks of an earlier version, which all could open, in directories of one, which all can enter.
install -d -o "${alice%:*}" -g "${alice#*:}" -m 755 "$base/alice" "$base"/alice/{1..60}
for i in {1..60}; do install -o "${alice%:*}" -g "${alice#*:}" -m 644 /dev/null "$base/alice/$i/.lock"; done
as_bob python3 -c 'import fcntl, sys, time
held = [open(f"{sys.argv[1]}/{i}/.lock") for i in range(1, 61)]
for file in held:
    fcntl.flock(file, fcntl.LOCK_SH)
open(sys.argv[2], "w").close()
time.sleep(250)' "$base/alice" "$base/held" &
holder=$!
poll 20 test -e "$base/held"
id=$(submit_counter locked "${short[@]}")
told() { out_of locked | grep -q "$base/alice/$id/.lock was not free within 30 s: process [0-9]* of user $bob holds its lock"; }
ok "who holds a lock that an earlier version left open is named" poll 60 told
like "$(stat -c %a "$base/alice/$id/.lock")" '^600$' "nobody else can open it from then on"
as_bob pkill -u bob python3
wait "$holder"
ends_well locked "$id" "a job whose lock bob held"
exits "bob can't open its locks" 66 as_bob flock --nonblock --shared "$base/alice/$id/.lock" true
rm -rf "$base/alice"

# Who may read what a job stores.
in_force() { # ACCESS
  local id comment
  id=$(submit -- --hold --framework=plain --gpus=1 --wrap=true)
  comment=$(xc scontrol show job "$id")
  xc scancel "$id"
  if [[ $1 == private ]]; then [[ $comment != *access=* ]]; else [[ $comment == *" access=$1"* ]]; fi
}
modes() { # KIND DIRECTORY: those of its directories or files, but for the locks
  find "$2" -type "$1" ! -name .lock ! -name .in-use -printf '%m\n' | sort -u | xargs
}
cp "$policy" "$CLUSTER/private.yaml"
for access in private group all; do
  { cat "$CLUSTER/private.yaml" && echo "checkpoint_access: $access"; } >"$policy"
  ok "checkpoint_access: $access" poll 20 in_force "$access"
  id=$(submit_counter "$access" "${short[@]}")
  poll 60 job_is "$id" COMPLETED
  case $access in
    private) wanted="700 600" ;;
    group) wanted="750 640" ;;
    all) wanted="755 644" ;;
  esac
  is "$(committed "$id") $(modes d "$base/alice") $(modes f "$base/alice")" "40 $wanted" "$access: its files have these modes"
  is "$(find "$base/alice" -name .lock -printf '%m\n')" 600 "its lock has not"
  ok "the history and the log are among them" ls "$base/alice/$id/events.jsonl" "$base/alice/$id"/logs/*
  # Bob is of her group, and Carol is not.
  [[ $access == private ]] && reads=1 || reads=0
  exits "$access: what one of her group reads" "$reads" as_bob cat "$base/alice/$id/events.jsonl"
  [[ $access == all ]] && reads=0 || reads=1
  exits "$access: what others read" "$reads" xc --user carol cat "$base/alice/$id/events.jsonl"
  rm -rf "$base/alice"
done
done_testing

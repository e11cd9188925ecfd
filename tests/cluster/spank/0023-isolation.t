#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# alice means harm to bob, whose job runs beside hers, and to the node. Each attempt fails, and where
# it can be shown, the same one succeeds as root, by the other user himself, or in a job without
# a contract, which has no view of its own.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

tools=$(mktemp -d)
cc -static -O1 -o "$tools/intruder" "$TAP_HOME/intruder.c" 2>"$tools/cc" ||
  { rm -rf -- "$tools"; skip_all "needs a compiler and a static libc"; }
container_cluster_up "" --nodes=1 --gpus=4
shared=$CLUSTER/shared
home=$shared/home/alice
bobs=$shared/home/bob
bob=20002
nobody=65534 # what fake root takes all others for
cp "$tools/intruder" "$shared/intruder"
cp -r "$images/busybox" "$images/arms"
cp "$tools/intruder" "$images/arms/intruder"
rm -rf -- "$tools"
node() { mc exec --user root --node 1 -- "$@"; }
# On a slow machine bob must stay for longer.
life=$(seconds 280)

# As systemd starts it: with a session's keyring, which all that slurmd starts comes to share.
node pkill -9 -x slurmd
poll 10 node sh -c '! pgrep -x slurmd'
node /usr/bin/python3 -c 'import ctypes, os
ctypes.CDLL("libkeyutils.so.1").keyctl_join_session_keyring(None)
os.execvp("slurmd", ["slurmd", "-N", "n1"])'
poll 20 node_is 1 idle || bail "slurmd did not start again"

# What a hostile image holds.
(
  cd "$images/arms" || exit
  mkdir proc sys dev
  mknod null c 1 3
  mknod gpu c 195 1
  chmod 666 null gpu
  cp intruder by-bits && chown root:root by-bits && chmod 6755 by-bits
  cp intruder by-attribute
  python3 -c 'import os, struct
os.setxattr("by-attribute", "security.capability", struct.pack("<5I", 0x02000001, 0x80, 0, 0, 0))'
  ln -s /proc/1/root host
  ln -s ../../../../../../../../proc/1/cwd up
  ln -s loop loop
  mkdir whole
  ln -s whole alias
  ln -s dev to-dev
  # To what alice may read, so that nothing but the container's root keeps her from it.
  ln -s "$shared" away
  ln -s "$shared/told" absolute
  ln -s "../../../../../../../..$shared/told" relative
)
echo told >"$shared/told"
chmod 666 "$shared/told"
make_squashfs "$images/arms" "$images/arms.sqsh"

# alice's ways to run an attempt: in her job's view of the host, and in a container.
view() { xc srun --quiet --gpus=1 --framework=plain "$shared/intruder" "$@" 2>&1; }
box=(--gpus=1 --container-image="$images/arms.sqsh" --container-mounts="$shared:/shared")
box() { xc srun --quiet "${box[@]}" /intruder "$@" 2>&1; }
plain() { xc srun --quiet "$shared/intruder" "$@" 2>&1; }
as_root() { node "$shared/intruder" "$@" 2>&1; }
step() { xc srun --quiet "${box[@]}" "$@" 2>&1; }

# What the intruder says: it tried, and nothing worked. An attempt that was never made is no proof.
denied() { # NAME COMMAND...
  local name=$1
  shift
  like "$("$@")" '(^|'$'\n'')[1-9][0-9]* attempts, 0 succeeded' "$name"
}
done_by() { # NAME COMMAND...
  local name=$1
  shift
  like "$("$@")" '(^|'$'\n'')[1-9][0-9]* attempts, [1-9][0-9]* succeeded' "$name"
}

# The victim: bob's script in his view of the host, and a step of his in a container.
cat >"$bobs/victim.sh" <<S
#!/bin/bash
for dir in /tmp /var/tmp /dev/shm; do echo secret >\$dir/secret; chmod 666 \$dir/secret; done
"$shared/intruder" memory /of-bob offer >segment
srun --overlap --container-image="$images/arms.sqsh" sh -c 'echo secret >/tmp/boxed; exec sleep $life' &
"$shared/intruder" abstract of-bob listen &
until srun --overlap test -e /tmp/boxed; do sleep 0.2; done
"$shared/intruder" keys put
touch ready
sleep $life
S
victim=$(submit --user bob -- --gpus=1 --framework=plain --output=victim.out victim.sh)
poll 30 test -e "$bobs/ready" || bail "bob's job did not start: $(<"$bobs/victim.out")"
gpu=$(xc --user bob srun --jobid="$victim" --overlap sh -c 'ls -l /dev/nvidia?' | sed -n 's/^c.*nvidia//p')

node mkdir /tmp/of-the-host

# Processes and memory.
denied "bob's processes show nothing in alice's view" view look uid $bob
denied "nor in a container" box look uid $bob
done_by "bob sees his own" xc --user bob srun --quiet "$shared/intruder" look uid $bob
denied "bob's namespaces can't be entered" view enter uid $bob
denied "nor from a container" box enter uid $bob
denied "nor by fake root there" box fake-root enter uid $nobody
done_by "root could" as_root enter uid $bob
denied "nor by descriptors of his processes" box pidfd uid $bob
denied "bob's processes can't be traced, nor their memory read" view trace uid $bob
denied "nor from a container" box trace uid $bob
denied "nor by fake root there" box fake-root trace uid $nobody
done_by "bob could" xc --user bob srun --quiet "$shared/intruder" trace uid $bob
denied "bob's processes get no signal" view signal uid $bob
denied "nor from a container" box signal uid $bob
done_by "but from himself" xc --user bob srun --quiet "$shared/intruder" signal uid $bob
denied "slurmstepd and slurmd show nothing" box look
denied "can't be traced" box trace
denied "nor signalled" box signal
denied "their namespaces can't be entered" box enter
denied "and their program can't be written through /proc" box overwrite
done_by "root could" as_root overwrite "$(node pgrep -x -o slurmd)"
denied "bob's shared memory is not there" view memory /of-bob
denied "nor in a container" box memory /of-bob
ok "bob has it" xc --user bob srun --quiet --jobid="$victim" --overlap \
  "$shared/intruder" memory /of-bob
denied "no session's keyring is shared" view keys take
xc --user bob srun --quiet "$shared/intruder" keys put
done_by "but that of slurmd among jobs without a contract" plain keys take
denied "not with a job that has one" view keys take
denied "nor with a container" box keys take

# Files and temporary space.
for place in view box; do
  denied "$place: bob's temporary files are not there" \
    $place open /tmp/secret /var/tmp/secret /dev/shm/secret /tmp/boxed
  denied "$place: nor the views that the node keeps" $place open /run/bellows/views \
    "/run/bellows/views/$victim" "/run/bellows/views/$victim/ns/base"
done
is "$(xc --user bob srun --jobid="$victim" --overlap cat /tmp/secret)" secret "bob has them"
is "$(node ls "/run/bellows/views/$victim/ns" | head -n 1)" base "and root the views"
xc --user bob srun sh -c 'echo secret >/tmp/secret; chmod 666 /tmp/secret'
done_by "without a contract /tmp is for all" plain open /tmp/secret
denied "but not for a job with one" view open /tmp/secret
denied "bob's home is his" step sh -c "/shared/intruder open /shared/home/bob/victim.sh"
denied "no file is opened by its number" box handle /shared
denied "nor by fake root" box fake-root handle /shared
if [[ $(as_root handle "$shared") == *DONE* ]]; then
  pass "root can"
else
  skip "root can" "this file system has other numbers"
fi
is "$(xc srun --framework=plain --gpus=1 stat -c '%a %u %g' /tmp /var/tmp /dev/shm | sort -u)" \
  "1777 0 0" "temporary directories are root's, so the kernel guards what is planted in them"

# GPUs.
denied "bob's GPU does not open in alice's view" view open "/dev/nvidia$gpu"
denied "nor in a container" box open "/dev/nvidia$gpu"
for place in view box; do
  denied "$place: nor a node of one's own" $place mknod /tmp 195 "$gpu"
  denied "$place: nor as fake root" $place fake-root mknod /tmp 195 "$gpu"
  denied "$place: what hides and guards can't be unmounted or changed by fake root" \
    $place fake-root mounts "$tmp_kept"
  denied "$place: nor bypassed by another mount of the same file system" $place afresh
  denied "$place: mounts are refused" $place mount
  denied "$place: the cgroups are closed, also to fake root" $place cgroups
  denied "$place: the kernel's doors are closed" $place kernel
done
done_by "root could unmount it all" node unshare --mount "$shared/intruder" mounts
done_by "root could open the cgroups" as_root cgroups 1
done_by "bob's own GPU opens" xc --user bob srun --quiet --jobid="$victim" --overlap \
  "$shared/intruder" open "/dev/nvidia$gpu"
denied "steps see no loop devices" box open /dev/loop-control /dev/loop0
ls_dev='for node in /dev/*; do test -d $node -o -h $node || echo ${node#/dev/}; done | xargs'
like "$(step sh -c "${ls_dev% | xargs}" | sort | xargs)" '^full null nvidia[0-3] random tty urandom zero$' \
  "a container's /dev has what it needs and no more"

# Hostile images.
cap() { xc "$images/arms/$1" gained; }
done_by "setuid bits in an image's directory work on the host" cap by-bits
done_by "and capabilities in attributes" cap by-attribute
done_by "and a device" xc "$shared/intruder" open "$images/arms/null"
for link in absolute relative; do
  done_by "a link leads there ($link)" xc "$shared/intruder" open "$images/arms/$link"
done
for privileges in yes no; do
  spank_args "image_dirs=$images no_new_privs=$privileges"
  for image in arms.sqsh arms; do
    box=(--gpus=1 --container-image="$images/$image" --container-mounts="$shared:/shared,$images/arms:/again")
    for at in "" /again; do
      denied "$image$at, no_new_privs=$privileges: bits give nothing" step "$at/by-bits" gained
      denied "$image$at, no_new_privs=$privileges: nor attributes" step "$at/by-attribute" gained
    done
    denied "$image: its devices are dead" box open /null /gpu /again/null /again/gpu
    denied "$image: its links lead nowhere" box open /host/etc/shadow /up/etc/shadow /loop /again/host/run \
      /absolute /relative /again/absolute /again/relative
  done
done
box=(--gpus=1 --container-image="$images/arms.sqsh" --container-mounts="$shared:/shared")
spank_args "image_dirs=$images"
while read -r -u 3 link wanted; do
  like "$(xc srun --quiet "${box[@]}" --container-workdir="$link" sh -c 'pwd; ls /bin/busybox' 2>&1 | xargs)" \
    "$wanted" "a working directory of $link stays inside"
done 3<<'LINKS'
host/etc entering the container: cannot open /host/etc: Permission denied
up entering the container: cannot open /up: Permission denied
away entering the container: cannot open /away: No such file
loop/loop entering the container: cannot open /loop/loop: Too many levels of symbolic links
/proc/1/root entering the container: cannot open /proc/1/root: Permission denied
/proc/self/root/etc entering the container: cannot open /proc/self/root/etc: Too many levels of symbolic links
/proc/self/root/../.. ^/proc /bin/busybox$
../../../.. ^/ /bin/busybox$
LINKS

# What a program is born with.
denied "a program inherits no way to the host, and .. ends at its root" box inherited
denied "also in the view of the host" view inherited
denied "also with a directory open in srun" xc sh -c "exec 9</etc 8</; srun --quiet ${box[*]} /intruder inherited"

# Hostile mounts.
mounts() { xc srun --quiet --gpus=1 --container-image="$images/arms.sqsh" --container-mounts="$shared:/shared,$1" "${@:2}" 2>&1; }
for source in /proc/1/root /proc/self/root /proc/self/fd/0 /proc/thread-self/cwd /proc/self/ns/mnt; do
  like "$(mounts "$source:/x" true)" 'bellows: container: opening the image and the mounts: cannot open /proc' \
    "$source is no source of a mount"
done
like "$(mounts "$bobs:/x" true)" 'Permission denied' "nor is bob's home"
denied "/run/bellows shows nothing of bob's" mounts /run/bellows:/x /intruder open "/x/views" "/x/$victim/user"
denied "the host's devices are dead" mounts /dev:/d /intruder open /d/null /d/zero "/d/nvidia$gpu" /d/loop-control
like "$(mounts "/dev/nvidia$gpu:/gpu" true)" 'cannot mount /dev/nvidia[0-9]: Operation not permitted' \
  "bob's GPU can't be mounted"
for target in /proc /proc/self /proc/driver /proc/sys/../self/fd /; do
  like "$(mounts "/etc:$target" true)" "refused: it is in /proc|container's root" \
    "nothing is mounted at $target"
done
for target in /dev /sys /tmp /etc/hosts; do
  like "$(mounts "umount:$target" sh -c \
    'for path in /etc/slurm /run/slurmd /dev/loop0 /dev/kmsg /tmp/of-the-host; do [ ! -e $path ] || echo $path; done; echo looked' 2>&1)" \
    '^looked$|bellows: container: mounting the user.s directories: umount:/(dev|tmp) is refused: Slurm and programs need' "unmounting $target uncovers nothing of the host's"
done
like "$(mounts "umount:/" true)" "container's root" "the root can't be unmounted"
for target in /whole/tmp /whole/var/tmp /whole/dev/shm /alias/tmp; do
  like "$(mounts "/:/whole,umount:$target" ls /whole/tmp)" \
    "umount:$target is refused: what is mounted there is a part of another mount" \
    "nor what hides the host's own: $target"
done
like "$(mounts "$home:/dev" true)" "the target is the container's own /dev" "nothing is mounted at /dev"
like "$(mounts "$home:/to-dev" true)" "refused: it is the container's own /dev" "nor by a link to it"

# Forged options. The user's own slurm.conf frees srun of the plugin, and so of its checks.
sed "s#^PlugStackConfig=.*#PlugStackConfig=/dev/null#" "$CLUSTER/etc/slurm.conf" >"$shared/forged.conf"
cp "$CLUSTER/etc/gres.conf" "$CLUSTER/etc/cgroup.conf" "$shared/"
printf '#!/bin/sh\nsleep 280\n' >"$home/sleep.sh"
held=$(submit -- --gpus=1 --container-image="$images/arms.sqsh" sleep.sh)
none=$(submit -- --gpus=1 sleep.sh)
carols=$shared/home/carol
cp "$home/sleep.sh" "$carols/"
hers=$(submit --user carol -- --gpus=1 --account=speech --framework=plain sleep.sh)
for job in "$held" "$none" "$hers"; do poll 30 job_is "$job" RUNNING; done
forged() { # USER JOB TEXT COMMAND...
  xc --user "$1" env SLURM_CONF="$shared/forged.conf" SLURM_BELLOWS_CONTAINER="$3" \
    srun --quiet --jobid="$2" --overlap --gres=none "${@:4}" 2>&1
}
is "$(forged alice "$held" "image:$images/busybox" cat /etc/environment)" IMAGE_SAYS=hello \
  "a step may say in its own words what it may have"
long=$(printf 'mount:/a:/%09000d' 1)
# srun would read the list.
while IFS='|' read -r -u 3 text why; do
  like "$(forged alice "$held" "$text" true)" "bellows: container: .*$why" "forged: ${text:0:40}"
done 3<<FORGED
image:/etc|may not use image /etc
image:$images/../../../etc|absolute path without
image:$images/../etc|absolute path without
image:relative|absolute path without
name:../x|may have only letters
name:.|must begin with
mount:/proc/1/root:/x|cannot open /proc/1/root
mount:../x:/x|absolute path
mount:/:/|container's root
tmp:0M|it is zero
nonsense:1|not an option
$long|longer than 2560 bytes
FORGED
like "$(forged alice "$none" "image:/etc" true)" 'may not use image /etc' "a plain job's step gets none but its tenant's"
like "$(forged carol "$hers" "image:$images/busybox" true)" 'may not use image' "nor a tenant's that may bring none"
contract="bellows/1 tenant=vision gpus=1 image=$images/busybox"
like "$(xc --user carol env SLURM_CONF="$shared/forged.conf" BELLOWS_CONTRACT="$contract" \
  SLURM_BELLOWS_CONTAINER="image:$images/busybox" srun --quiet --jobid="$hers" --overlap --gres=none \
  cat /etc/environment 2>&1)" 'may not use image' "nor by a contract of her own making"
is "$(forged carol "$hers" "" sh -c 'ls -d /tmp/secret 2>&1 | grep -c "No such"')" 1 \
  "no srun takes a job's view away"
for variable in BELLOWS_CONTAINER_IMAGE PYXIS_CONTAINER_IMAGE; do
  like "$(xc --user carol env "$variable=$images/busybox" srun --jobid="$hers" --overlap true 2>&1)" \
    'may not use image' "carol's $variable brings no image"
done
like "$(xc --user carol env _SLURM_SPANK_OPTION_bellows_container_image="$images/busybox" \
  SPANK__SLURM_SPANK_OPTION_bellows_container_image="$images/busybox" \
  srun --quiet --jobid="$hers" --overlap sh -c 'test -e /etc/passwd && ls -d /etc/slurm /etc/apt' 2>&1)" \
  '/etc/apt' "nor do forged variables of SPANK's"
like "$(xc --user carol env BELLOWS_CONTRACT=forged BELLOWS_TENANT=vision SLURM_BELLOWS_CONTAINER="image:$images/busybox" \
  srun --quiet --jobid="$hers" --overlap sh -c 'echo $BELLOWS_TENANT; cat /etc/environment; true' 2>&1)" \
  '^speech' "nor another tenant's name"
like "$(xc srun --quiet "${box[@]}" --container-name=../x true 2>&1)" 'may have only letters' "names are no paths"
like "$(xc --user bob srun --jobid="$held" --overlap true 2>&1)" 'Access|Invalid|denied' \
  "bob starts no step in alice's job"
xc --user root scancel "$held" "$none" "$hers"
poll 20 job_is "$hers" CANCELLED

for directory in /tmp / /proc /run/bellows; do
  is "$(xc env PMIX_SERVER_TMPDIR=$directory PMIX_NAMESPACE=x srun --quiet --mpi=none "${box[@]}" \
    sh -c 'find /tmp -maxdepth 2 ! -path "'"${tmp_kept:-/none}"'/*" | grep -E "of-the-host|views|/etc|/1$|secret"; echo looked' 2>&1)" looked \
    "a forged PMIX_SERVER_TMPDIR=$directory uncovers nothing of the host's"
done

# The process that sets up a view, alice's by its user and with capabilities, is closed to alice.
stopped() { node sh -c 'for s in /proc/[0-9]*/stat; do read -r pid name state rest <$s; [ "$state" = T ] && echo $pid; done' | xargs; }
go_on() {
  node sh -c "kill -CONT $(stopped)"
  ! kill -0 "$waiting"
}
is_stopped() { [[ -n $(stopped) ]]; }
for phase in checking_the_fence_around_GPUs "making_the_job's_temporary_space" opening_the_image_and_the_mounts \
  entering_the_container joining_the_container giving_up_the_capabilities; do
  spank_args "image_dirs=$images phase_seconds=$(seconds 30) pause_at=$phase"
  step true >"$CLUSTER/paused" 2>&1 &
  waiting=$!
  poll 20 is_stopped
  pids=$(stopped)
  spank_args "image_dirs=$images"
  # shellcheck disable=SC2086
  denied "$phase: no process of alice's looks into it" view look $pids
  # shellcheck disable=SC2086
  denied "$phase: traces it" view trace $pids
  # shellcheck disable=SC2086
  denied "$phase: takes its descriptors or namespaces" view pidfd $pids
  # A phase may begin again, in the view and in the container.
  poll 20 go_on
  wait "$waiting" || diag "$(<"$CLUSTER/paused")"
done
step sleep 20 &
waiting=$!
asleep() { pid=$(node pgrep -f '^[^ ]*sleep 20$') && [[ -n $pid ]]; }
poll 20 asleep
done_by "once its program runs, she may" plain trace "$pid"
node kill "$pid"
wait "$waiting"

# Races: what a path leads to changes all the while.
mkdir -p "$home/image" "$shared/open" "$CLUSTER/closed"
cp -r "$images/busybox/." "$home/image/"
chown -R alice: "$home/image" 2>/dev/null || chown -R 20001:20101 "$home/image"
echo secret >"$CLUSTER/closed/secret"
chmod 700 "$CLUSTER/closed"
chmod 777 "$shared/open"
sed -i "s#images: \[\"$images/\*\"\]#images: [\"$images/*\", \"$home/*\"]#" "$CLUSTER/etc/bellows.yaml"
poll 10 xc sbatch --test-only --container-image="$home/image" --wrap true || bail "the policy is not taken"
cat >"$home/race.sh" <<S
#!/bin/bash
cd $home
mkdir -p source/a image/mnt; echo mine >source/a/secret
while [[ -e racing ]]; do
  rm -rf image/mnt; ln -s $shared/open image/mnt; ln -sfn $CLUSTER/closed source/b
  rm -rf image/mnt; ln -s ../../../../../../../../../$shared/open image/mnt
  mv -T source/a source/c; mv -T source/b source/a; mv -T source/a source/b; mv -T source/c source/a
  rm -rf image/mnt; mkdir image/mnt
done
S
touch "$home/racing"
chmod 755 "$home/race.sh"
before=$(node cat /proc/self/mountinfo | sed 's/^[0-9]* [0-9]* //' | sort)
xc "$home/race.sh" >/dev/null 2>&1 &
racer=$!
for ((i = 0; i < 25; i++)); do
  xc srun --quiet --gpus=1 --container-image="$home/image" --container-writable \
    --container-mounts="$home/source/a:/mnt/made/here,tmpfs:/mnt/too" \
    sh -c 'cat /mnt/made/here/secret; ls -d /mnt/made' 2>&1
done >"$CLUSTER/races"
rm -f "$home/racing"
wait "$racer"
diag "$(sed 's/.*container: [^:]*: //' "$CLUSTER/races" | sort | uniq -c)"
unlike "$(<"$CLUSTER/races")" '(^|'$'\n'')secret' "a source that is swapped never shows what is root's"
like "$(<"$CLUSTER/races")" 'mine|/mnt/made' "and some of the steps went well"
is "$(ls -A "$shared/open")" "" "a target that is swapped never leads out of the image"
is "$(node cat /proc/self/mountinfo | sed 's/^[0-9]* [0-9]* //' | sort)" "$before" \
  "and nothing is mounted on the host"

# An image that its user rearranges while its container is there.
cat >"$home/swap.sh" <<S
#!/bin/bash
# On an overlay a new name has no effect.
# HOW GRES GRES NAME...: those of the step that makes the container and of the one that joins.
how=\$1 first=\$2 second=\$3
cd $home/image
box=(srun -n1 --overlap --container-name=box --container-image=$home/image --container-writable
  --container-mounts=tmpfs:/another-dev,/proc:/another-proc)
coproc FIRST { "\${box[@]}" --gres=\$first sh -c 'echo made with \$(ls /dev | grep -c "^nvidia[0-9]"); read end'; }
first_ended=\$FIRST_PID
exec 3>&"\${FIRST[1]}"
read -r made <&"\${FIRST[0]}"
echo "\$made"
for name in "\${@:4}"; do
  mv \$name old-\$name
  case \$how in
    link) ln -s /proc/\$\$/root/\$name \$name ;;
    alias) ln -s another-\$name \$name ;;
    fake) cp -r $home/fake \$name ;;
    mount) mv another-\$name \$name ;;
  esac
done
"\${box[@]}" --gres=\$second sh -c 'echo joined'
for name in "\${@:4}"; do
  if [[ \$how == mount ]]; then mv \$name another-\$name; else rm -r \$name; fi
  mv old-\$name \$name
done
echo end >&3
wait "\$first_ended"
ls -d /run/slurmd
S
# A /proc where the driver's directory is something mounted, and each descriptor something to unmount.
mkdir -p "$home/fake/driver" "$home/fake/self/fd"
ln -s /dev/shm "$home/fake/driver/nvidia"
for fd in {0..63}; do ln -s /etc/hosts "$home/fake/self/fd/$fd"; done
rm -rf "$home/image/mnt"
while read -r -u 3 why how first second gpus names; do
  # shellcheck disable=SC2086
  xc sbatch --wait --gpus=2 --container-image="$home/image" --output=swap.out --open-mode=truncate "$home/swap.sh" \
    "$how" "$first" "$second" $names >/dev/null
  said=$(<"$home/swap.out")
  like "$said" "made with $gpus.*container: [a-z ]*: ${why//_/ }.*/run/slurmd" \
    "an image is rearranged under its container: $how $first $second $names"
  unlike "$said" joined "and nobody joins what is there now"
done 3<<'SWAPS'
cannot_open_/dev:_Too_many link none gpu:2 0 dev
cannot_open_/proc:_Too_many link none gpu:2 0 proc
cannot_open_/dev: link none gpu:2 0 proc dev tmp
/proc_is_not_the_one_that alias gpu:2 none 2 proc
/dev_is_not_the_one_that alias none gpu:2 0 dev
/proc_is_not_the_one_that fake none gpu:2 0 proc
/proc_is_not_the_one_that fake gpu:2 none 2 proc
/proc_is_not_the_one_that mount gpu:2 none 2 proc
/dev_is_not_the_one_that mount none gpu:2 0 dev
/dev_is_not_the_one_that mount gpu:2 none 2 dev
SWAPS
is "$(node cat /proc/self/mountinfo | sed 's/^[0-9]* [0-9]* //' | sort)" "$before" "nothing of it reaches the host"

# What no file system separates: SECURITY.md says so.
done_by "abstract sockets are not isolated" box abstract of-bob connect

# Nothing of all this is left.
xc --user root scancel --state=RUNNING
ok "all jobs end" poll 30 nodes_idle
ok "no view is left" poll 10 no_views 1
ok "and nothing mounted" nothing_mounted 1
done_testing

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 90
# Root in a container: what installs packages believes that it succeeded, file systems and a host
# name can be made and changed, and nothing that was mounted before can be taken away.
# shellcheck source=tests/cluster/tap.sh disable=SC2016
. "$(dirname "$0")/../tap.sh"
# shellcheck source=tests/cluster/images.sh
. "$TAP_HOME/images.sh"

tools=$(mktemp -d)
cc -static -O1 -o "$tools/intruder" "$TAP_HOME/intruder.c" 2>"$tools/cc" ||
  { rm -rf -- "$tools"; skip_all "needs a compiler and a static libc"; }
container_cluster_up "" --nodes=1 --gpus=2
shared=$CLUSTER/shared
chmod 777 "$shared"
cp "$tools/intruder" "$shared/intruder"
rm -rf -- "$tools"
# What a package looks like to who unpacks it: files of several users.
mkdir "$shared/package" && echo data >"$shared/package/data"
chown 42:43 "$shared/package/data"
tar -C "$shared" -cf "$shared/package.tar" package
root() { # OPTION-OF-SRUN... PROGRAM...
  xc srun --quiet --mpi=none --gpus=1 --container-remap-root --container-image="$images/busybox.sqsh" \
    --container-mounts="$shared:/shared" "$@" 2>&1
}
line() { sed -n "s/^$1: //p" <<<"$said"; }

cat >"$shared/inside.sh" <<'S'
tell() { local name=$1; shift; { "$@" 2>&1 && echo yes; } | sed "s/^/$name: /"; }
cd /tmp
echo mine >mine
tell chown busybox chown 42:43 mine
tell owner stat -c '%u %g' mine
tell unpacked busybox tar -xpf /shared/package.tar
tell data cat package/data
tell seccomp sed -n 's/^Seccomp:[^0-9]*//p' /proc/self/status
mkdir place
tell tmpfs mount -t tmpfs none place
tell filled touch place/file
tell unmount umount place
tell bind mount -o bind /shared place
tell hostname hostname other
tell hostname hostname
tell device mknod node c 1 3
tell proc umount /proc
tell dev umount -l /dev
tell shared umount -l /shared
tell sys mount -o remount,rw,bind /sys
tell gpus sh -c 'for i in 0 1; do head -c 0 /dev/nvidia$i 2>/dev/null && echo $i; done | wc -l'
S
said=$(root --container-unshare=uts sh /shared/inside.sh)
is "$(line chown | xargs)" yes "chown succeeds, as package managers want it" || diag "$said"
is "$(line owner | xargs)" "0 0 yes" "but changes nothing"
is "$(line unpacked | xargs) $(line data | xargs)" "yes data yes" "an archive with files of others is unpacked"
is "$(line seccomp | xargs)" "2 yes" "by a seccomp filter"
is "$(line tmpfs | xargs) $(line filled | xargs) $(line unmount | xargs) $(line bind | xargs)" "yes yes yes yes" \
  "file systems are mounted, and unmounted again"
is "$(line hostname | xargs)" "yes other yes" "a host name of the container's own is changed"
is "$(mc exec --user root --node 1 -- hostname)" n1 "not the node's"
like "$(line device)" 'not permitted|denied' "no device is made"
for which in proc dev shared; do
  like "$(line $which)" 'Invalid argument|not permitted' "/$which can't be unmounted"
done
like "$(line sys)" 'not permitted|denied' "nor /sys made writable"

# Every mount of the container, one after the other.
like "$(root /shared/intruder mounts "$tmp_kept")" '(^|'$'\n'')[1-9][0-9]* attempts, 0 succeeded' \
  "nothing that hides or guards can be unmounted or changed"
like "$(root /shared/intruder mknod /tmp 195 1)" ' 0 succeeded' "no GPU's node can be made"
like "$(root --container-writable sh -c 'busybox chown 1:1 /etc/environment && echo changed')" changed \
  "in a writable image too"
is "$(xc srun --quiet --mpi=none --container-image="$images/busybox.sqsh" sed -n 's/^Seccomp:[^0-9]*//p' /proc/self/status)" 0 \
  "without --container-remap-root there is no filter"

# What root has mounted in one step, a step that joins it has, too; later ones do not.
cat >"$shared/steps.sh" <<'S'
step() { srun --quiet --mpi=none --ntasks=1 --overlap --container-name=joined "$@"; }
step --container-remap-root --container-image="$1" --container-mounts="$2:/shared" sh -c '
  mkdir /tmp/place "/tmp/an other" && mount -t tmpfs none /tmp/place && echo mine >/tmp/place/file &&
  mkdir /tmp/place/below && mount -t tmpfs none /tmp/place/below && echo below >/tmp/place/below/file &&
  mount -t tmpfs none "/tmp/an other" && echo other >"/tmp/an other/file" &&
  mount -t tmpfs none /proc && busybox mkfifo /shared/end && read x </shared/end' &
for ((i = 0; i < 300; i++)); do [ ! -p "$2/end" ] || break; sleep 0.1; done
step --container-remap-root --container-workdir=/tmp sh -c 'pwd; cat /tmp/place/file /tmp/place/below/file "/tmp/an other/file"'
step ls -A /tmp/place
srun --quiet --mpi=none --ntasks=1 --overlap --container-name=joined:no_exec --container-remap-root ls -A /tmp/place
timeout 10 sh -c 'echo >"$1/end"' sh "$2"
wait
step --container-remap-root ls -A /tmp/place
S
is "$(xc salloc --quiet -n2 bash "$shared/steps.sh" "$images/busybox.sqsh" "$shared" 2>&1 | xargs)" "/tmp mine below other" \
  "a step that joins root has what root mounted, whatever became of its /proc, and one that does not join has none"

# A site may give all containers a user namespace, as enroot does.
spank_args "image_dirs=$images user_namespace=yes"
said=$(xc srun --quiet --mpi=none --gpus=1 --container-image="$images/busybox.sqsh" sh -c '
  cat /proc/self/uid_map /proc/self/gid_map; id -u; stat -c %u /etc/environment
  sed -n "s/^\(Seccomp\|CapEff\|CapBnd\|NoNewPrivs\):[^0-9]*//p" /proc/self/status; touch /tmp/mine
  busybox chown 42:43 /tmp/mine && stat -c %u /tmp/mine; mount -t tmpfs none /tmp 2>&1 || true' 2>&1)
# Before Linux 6.2 squashfs can't be mounted with other owners.
roots=65534
! linux_is_from 6.2 || roots=20001
is "$(head -n -1 <<<"$said" | xargs)" "20001 20001 1 20101 20101 1 20001 $roots 0000000000000000 0000000000000000 1 2 20001" \
  "a user who is not root can be alone in a user namespace, too"
like "$said" 'permitted|denied' "without any right over it" || diag "$said"
is "$(xc salloc --quiet -n2 sh -c "srun --quiet --mpi=none --ntasks=1 --container-image=$images/busybox.sqsh --container-name=both \
    --container-writable --container-remap-root sh -c 'id -u; echo one >/one'
  srun --quiet --mpi=none --ntasks=2 --container-name=both --container-writable sh -c 'id -u; stat -c %u /one'" 2>&1 | sort | xargs)" \
  "0 20001 20001 20001 20001" "a container has both kinds"
ok "nothing stays mounted" poll 20 nothing_mounted 1
done_testing

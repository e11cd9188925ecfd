#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# init.sh DIR MEMBER SOURCE: process 1 of a member of the cluster.
# shellcheck disable=SC2154 # MC_* come from DIR/state/vars
# It builds the member's own view of the file system, waits until its network is there, starts
# its daemons and then only reaps. The new root is a tmpfs that shows the machine's directories,
# so that nothing has to be made on the machine itself.
set -euo pipefail

dir=$1
member=$2
source_dir=$3
lib=$source_dir/tests/cluster/minicluster.d
root=$dir/run/root-$member
# shellcheck source=/dev/null
. "$dir/state/vars"

# The machine's /proc is still mounted, so this is the pid that the machine knows.
record_pid() {
  local line pid
  read -r line </proc/self/stat
  pid=${line%% *}
  # shellcheck disable=SC2086
  set -- ${line##*) }
  echo "$pid ${20}" >"$dir/state/pid.$member.new"
  mv -- "$dir/state/pid.$member.new" "$dir/state/pid.$member"
}

make_root() {
  local entry name
  mount -t tmpfs -o mode=755 root "$root"
  # Else each copy of the tree that holds DIR would hold the new root again.
  mount --make-unbindable "$root"
  for entry in /* /.[!.]*; do
    name=${entry#/}
    case $name in
      proc | dev | tmp | run | shared | '*' | '.[!.]*') ;;
      *)
        if [[ -L $entry ]]; then
          cp -P -- "$entry" "$root/$name"
        elif [[ -d $entry ]]; then
          mkdir -- "$root/$name"
          mount --rbind "$entry" "$root/$name"
        elif [[ -f $entry ]]; then
          : >"$root/$name"
          mount --bind "$entry" "$root/$name"
        fi ;;
    esac
  done
  mkdir "$root"/{proc,dev,tmp,run,shared,.machine}
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  mount -t tmpfs -o mode=755 run "$root/run"
  mount -t tmpfs -o mode=1777 tmpfs "$root/var/tmp"
  mkdir "$root"/run/{lock,slurmd}
}

make_devices() {
  local dev=$root/dev path
  mount -t tmpfs -o mode=755 dev "$dev"
  mkdir "$dev"/{pts,shm,mqueue}
  mknod -m 666 "$dev/null" c 1 3
  mknod -m 666 "$dev/zero" c 1 5
  mknod -m 666 "$dev/full" c 1 7
  mknod -m 666 "$dev/random" c 1 8
  mknod -m 666 "$dev/urandom" c 1 9
  mknod -m 666 "$dev/tty" c 5 0
  # devtmpfs would add a node for each loop device that comes to be; this /dev is a plain tmpfs.
  mknod -m 600 "$dev/loop-control" c 10 237
  mknod -m 666 "$dev/fuse" c 10 229
  # By one process: this is most of what a member's start costs.
  python3 -S -c 'import os, sys
for i in range(256):
    os.mknod(f"{sys.argv[1]}/loop{i}", 0o60600, os.makedev(7, i))' "$dev"
  mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 pts "$dev/pts"
  mount -t tmpfs -o mode=1777 shm "$dev/shm"
  mount -t mqueue mqueue "$dev/mqueue" 2>/dev/null || true
  ln -s pts/ptmx "$dev/ptmx"
  ln -s /proc/self/fd "$dev/fd"
  ln -s fd/0 "$dev/stdin"
  ln -s fd/1 "$dev/stdout"
  ln -s fd/2 "$dev/stderr"
  [[ $member != ctl ]] || return 0
  # The device is its number: with a driver these are the real GPUs, without one they are closed.
  while IFS= read -r path; do
    mknod -m 666 "$root$path" c 195 "${path#/dev/nvidia}"
  done < <(sed -n "s/^NodeName=$member Name=gpu File=//p" "$dir/etc/gres.conf")
  for path in /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools /dev/nvidia-modeset /dev/nvidia-caps; do
    [[ ! -e $path ]] || cp -a -- "$path" "$dev/"
  done
}


# Slurm moves a finishing slurmstepd to the root of cgroup v2, but only the machine's true root
# may hold processes and hand down controllers at once. So a leaf stands in for ours.
lend_root_a_leaf() {
  ((MC_cgroup_version == 1)) ||
    mount --bind /sys/fs/cgroup/init/cgroup.procs /sys/fs/cgroup/cgroup.procs
}

# In its cgroup namespace a hierarchy that is mounted again shows the member's group as its root.
mount_cgroups() {
  local at=$root/sys/fs/cgroup controller
  if ((MC_cgroup_version == 2)); then
    # Slurm from 24.11 on takes the first mount that it finds there in mountinfo, which must not be
    # the machine's.
    while mountpoint --quiet "$at"; do umount --lazy "$at"; done
    mount -t cgroup2 cgroup2 "$at"
    return
  fi
  mount -t tmpfs -o mode=755 cgroup "$at"
  for controller in $MC_controllers; do
    mkdir -- "$at/$controller"
    mount -t cgroup -o "$controller" cgroup "$at/$controller"
  done
}

bind_etc() {
  local file
  for file in passwd group hosts; do
    [[ ! -e $root/etc/$file ]] || mount --bind "$dir/etc/$file" "$root/etc/$file"
  done
}

enter_root() {
  cd "$root"
  pivot_root . .machine
  cd /
  mount --make-private /
}

# Users must reach DIR and the build even when these lie in a private directory, such as root's
# home: that directory is covered by an empty one, and what is needed shows through.
cover_private_ancestors() { # PATH
  local part path=""
  while IFS= read -r -d / part; do
    [[ -n $part ]] || continue
    path=$path/$part
    [[ -d $path ]] || return 0
    if [[ $(stat -c %A -- "$path") != *[xt] ]]; then
      mount -t tmpfs -o mode=755 cover "$path"
      return
    fi
  done <<<"${1%/*}/"
}

show_through() { # PATH
  [[ ! $1 -ef /.machine$1 ]] || return 0
  mkdir -p -- "$1"
  mount --rbind "/.machine$1" "$1"
}

share_directories() {
  local path
  for path in "$source_dir" "$MC_builddir" "$dir"; do
    [[ -z $path ]] || cover_private_ancestors "$path"
  done
  for path in "$source_dir" "$MC_builddir" "$dir"; do
    [[ -z $path ]] || show_through "$path"
  done
  mount --bind "$dir/shared" /shared
  mount --bind "$dir/spool/$member" /run/slurmd
  umount -l /.machine
  rmdir /.machine
}

# The machine writes this member's address once its end of the wire is in place.
start_network() {
  local address
  until [[ -s $dir/state/go.$member ]]; do sleep 0.02; done
  read -r address <"$dir/state/go.$member"
  ip -batch - <<BATCH
link set dev lo up
address add $address/24 dev eth0
link set dev eth0 up
BATCH
}

start_slurmd() (
  ((MC_cgroup_version == 1)) || echo "$BASHPID" >/sys/fs/cgroup/slurmd/cgroup.procs
  exec slurmd -N "$member" -f "$SLURM_CONF"
)

start_daemons() {
  if [[ $member != ctl ]]; then
    start_slurmd
    return
  fi
  rm -f -- "$dir/run/munge.socket"
  munged --force --key-file="$dir/etc/munge.key" --socket="$dir/run/munge.socket" \
    --pid-file=/run/munged.pid --log-file="$dir/log/munged.log" --seed-file=/run/munged.seed
  ((!MC_accounting)) || /bin/bash "$lib/database.sh" "$dir" || return
  ((!MC_elastic)) || lend_to_slurm
  slurmctld -f "$SLURM_CONF"
}

# What slurmctld writes once it has become SlurmUser.
lend_to_slurm() {
  touch "$dir/log/slurmctld.log"
  chown -R slurm: "$dir/spool/ctld" "$dir/log/slurmctld.log"
}

umask 022
record_pid
hostname "$member"
make_root
make_devices
mount_cgroups
bind_etc
enter_root
share_directories
start_network
lend_root_a_leaf
if start_daemons; then
  touch "$dir/state/started.$member"
else
  touch "$dir/state/failed.$member"
fi
while :; do
  sleep infinity &
  wait $! || true
done

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Each member lives in cgroup bellows-mcID/MEMBER and, through a cgroup namespace, takes that for
# the root. Slurm names its groups by node only, so without this two clusters would share them.

detect_cgroups() {
  local kind controller
  kind=$(stat -f -c %T /sys/fs/cgroup 2>/dev/null || true)
  case $kind in
    cgroup2fs)
      # Slurm 22.05 misreads the last controller of a list; pids stands there for it to lose.
      cgroup_version=2 controllers="cpuset cpu memory pids"
      [[ " $(</sys/fs/cgroup/cgroup.controllers) " == *" memory "* ]] ||
        die "this machine's cgroup v2 has no memory controller; Slurm needs it"
      [[ -w /sys/fs/cgroup/cgroup.procs ]] || die "the cgroups in /sys/fs/cgroup can't be changed" ;;
    tmpfs)
      cgroup_version=1 controllers="freezer cpuset memory devices"
      for controller in $controllers; do
        [[ -w /sys/fs/cgroup/$controller/cgroup.procs ]] ||
          die "cgroup v1's $controller controller is not mounted on /sys/fs/cgroup/$controller"
      done ;;
    *) die "no cgroups are mounted on /sys/fs/cgroup; Slurm needs them" ;;
  esac
}

# The directories of a group, one for each v1 hierarchy.
cgroup_paths() { # [MEMBER]
  local controller
  if ((cgroup_version == 2)); then
    echo "/sys/fs/cgroup/bellows-mc$id${1:+/$1}"
  else
    for controller in $controllers; do
      echo "/sys/fs/cgroup/$controller/bellows-mc$id${1:+/$1}"
    done
  fi
}

cgroup_is_free() {
  local path
  for path in $(cgroup_paths); do [[ ! -e $path ]] || return 1; done
}

# Enables Slurm's controllers below a v2 group, as far as the machine has them.
enable_controllers() { # PATH
  local controller
  for controller in $controllers; do
    [[ " $(<"$1/cgroup.subtree_control") " == *" $controller "* ]] ||
      { echo "+$controller" >"$1/cgroup.subtree_control"; } 2>/dev/null || true
  done
}

# A v1 cpuset is unusable until it has processors and memory nodes.
fill_cpuset() { # PATH
  [[ $1 == /sys/fs/cgroup/cpuset/* ]] || return 0
  cat "${1%/*}/cpuset.cpus" >"$1/cpuset.cpus"
  cat "${1%/*}/cpuset.mems" >"$1/cpuset.mems"
}

# What the top hands down is the machine's, and up and down of all clusters change it. Without a lock
# one could take a controller away just before another, which found it enabled, begins to use it.
with_controllers_locked() { # COMMAND
  (
    flock --wait 60 9 || die "something else holds the lock on /sys/fs/cgroup"
    "$1"
  ) 9</sys/fs/cgroup
}

make_cluster_cgroup() {
  local path
  if ((cgroup_version == 2)); then
    with_controllers_locked make_v2_cgroup
    return
  fi
  for path in $(cgroup_paths); do
    mkdir -- "$path"
    fill_cpuset "$path"
  done
}

make_v2_cgroup() {
  cp /sys/fs/cgroup/cgroup.subtree_control "$dir/state/controllers.before"
  enable_controllers /sys/fs/cgroup
  mkdir -- "$(cgroup_paths)"
  # From here on the kernel refuses to take them away.
  enable_controllers "$(cgroup_paths)"
}

make_member_cgroup() { # MEMBER
  local path
  for path in $(cgroup_paths "$1"); do
    mkdir -- "$path"
    fill_cpuset "$path"
  done
}

enter_cgroup() { # MEMBER: moves this process
  local path
  for path in $(cgroup_paths "$1"); do
    [[ ! -d $path/outside ]] || path=$path/outside
    echo "$BASHPID" >"$path/cgroup.procs"
  done
}

# In v2 a group either holds processes or hands controllers down. The member's first processes
# were born in its group, to become the root of its namespace; now they make room for Slurm's.
# From 24.11 on slurmd refuses a group with processes that it can't see, and hands controllers down
# in the group that it is started in.
settle_cgroup() { # MEMBER
  local path inside
  ((cgroup_version == 2)) || return 0
  path=$(cgroup_paths "$1")
  inside=$(readlink "/proc/$(member_pid "$1")/ns/pid")
  mkdir -p -- "$path"/{init,outside,slurmd,exec} "$path/system.slice/$1_slurmstepd.scope"
  poll_for 10 leave_v2_cgroup "$path" "$inside" || die "$1 did not leave its control group"
  enable_controllers "$path"
  enable_controllers "$path/system.slice"
  enable_controllers "$path/system.slice/$1_slurmstepd.scope"
}

leave_v2_cgroup() { # PATH NAMESPACE_OF_PIDS
  local pid leaf
  while read -r pid; do
    leaf=outside
    [[ $(readlink "/proc/$pid/ns/pid") != "$2" ]] || leaf=init
    echo "$pid" >"$1/$leaf/cgroup.procs" 2>/dev/null || true
  done < <(cat "$1/cgroup.procs")
  [[ -z $(<"$1/cgroup.procs") ]]
}

freeze_cgroup() { # MEMBER 0|1
  if ((cgroup_version == 2)); then
    echo "$2" >"$(cgroup_paths "$1")/cgroup.freeze"
  elif (($2)); then
    echo FROZEN >"/sys/fs/cgroup/freezer/bellows-mc$id/$1/freezer.state"
  else
    echo THAWED >"/sys/fs/cgroup/freezer/bellows-mc$id/$1/freezer.state"
  fi
}

cgroup_is_frozen() { # MEMBER
  local state=""
  if ((cgroup_version == 2)); then
    { read -r state <"$(cgroup_paths "$1")/cgroup.freeze"; } 2>/dev/null || true
    [[ $state == 1 ]]
  else
    { read -r state <"/sys/fs/cgroup/freezer/bellows-mc$id/$1/freezer.state"; } 2>/dev/null || true
    [[ $state == FROZEN || $state == FREEZING ]]
  fi
}

# Kills what is left in a group, if anything is, and removes it with all below it.
remove_cgroup() { # [MEMBER]
  local path
  for path in $(cgroup_paths "${1:-}"); do
    poll_for 20 remove_cgroup_tree "$path" ||
      { warn "cannot remove $path: something in it does not die"; return 1; }
  done
}

remove_cgroup_tree() { # PATH
  local sub pid
  [[ -d $1 ]] || return 0
  while read -r sub; do
    rmdir -- "$sub" 2>/dev/null && continue
    while read -r pid; do
      ((pid == 0)) || kill -KILL "$pid" 2>/dev/null || true
    done < <(cat "$sub/cgroup.procs" 2>/dev/null)
  done < <(find "$1" -depth -type d 2>/dev/null)
  [[ ! -d $1 ]]
}

# Hands back controllers that up enabled at the top, unless something else uses them by now.
restore_controllers() {
  local before controller
  { before=$(<"$dir/state/controllers.before"); } 2>/dev/null || return 0
  for controller in $controllers; do
    [[ " $before " == *" $controller "* ]] ||
      { echo "-$controller" >/sys/fs/cgroup/cgroup.subtree_control; } 2>/dev/null || true
  done
}

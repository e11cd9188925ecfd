# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# A member is the controller ("ctl") or a node ("n1"...): an init of its own in namespaces of its
# own. Killing that init makes the kernel kill all of the member at once.

# Starts the member's init, which prepares its file system and then waits for start_member.
create_member() { # MEMBER
  local member=$1 log=$dir/log/boot-$1.log
  rm -f -- "$dir/state"/{pid,go,failed,started}."$member"
  mkdir -p "$dir/spool/$member" "$dir/run/root-$member"
  make_member_cgroup "$member"
  (
    enter_cgroup "$member"
    close_inherited_files
    cd /
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 SLURM_CONF="$dir/etc/slurm.conf" \
      "${daemon_environment[@]}" setsid "$MC_LIB/oldest-namespace.py" \
      unshare --uts --ipc --net --pid --cgroup --fork --kill-child \
      /bin/bash "$MC_LIB/init.sh" "$dir" "$member" "$MC_SOURCE"
  ) </dev/null >"$log" 2>&1 &
  disown
}

# What up's caller waits for, such as the end of a pipe, must not wait for the cluster.
close_inherited_files() {
  local fd
  for fd in /proc/"$BASHPID"/fd/*; do
    fd=${fd##*/}
    ((fd <= 2 || fd == 255)) || eval "exec $fd>&-"
  done
}

connect_member() { # MEMBER
  poll_for 20 member_pid "$1" >/dev/null || {
    show_log_tail "$dir/log/boot-$1.log"
    die "$1 did not start"
  }
  settle_cgroup "$1"
  add_link "$1"
}

# Lets the init go on to start its daemons.
start_member() { # MEMBER
  member_address "$1" >"$dir/state/go.$1"
}

destroy_member() { # MEMBER
  local pid
  if pid=$(member_pid "$1"); then
    kill -KILL "$pid" 2>/dev/null || true
  fi
  # A frozen process of cgroup v1 dies only when it is thawed.
  freeze_cgroup "$1" 0 2>/dev/null || true
  remove_link "$1"
  remove_cgroup "$1"
  rm -f -- "$dir/state"/{pid,go,failed,started}."$1"
}

member_settled() { [[ -e $dir/state/started.$1 || -e $dir/state/failed.$1 ]]; }

# Waits until a member's init has started its daemons.
wait_for_daemons() { # MEMBER
  { poll_for 60 member_settled "$1" && [[ -e $dir/state/started.$1 ]]; } || {
    show_log_tail "$dir/log/boot-$1.log"
    die "$1 did not start its daemons"
  }
}

# Becomes a command that root runs in all namespaces and the cgroup of a member.
exec_in_member() { # MEMBER COMMAND...
  local member=$1 pid
  shift
  pid=$(member_pid "$member") || die "$member is not running"
  enter_cgroup "$member"
  ((cgroup_version == 1)) || set -- /bin/sh -c "$enter_exec_leaf" "$@"
  # The root is the init's and not its namespace's: these differ when all of this runs in a chroot.
  exec nsenter --target "$pid" --mount --uts --ipc --net --pid --cgroup --root --wd -- "$@"
}

# nsenter itself stays outside. A slurmd that was started in a group has moved all below it.
# shellcheck disable=SC2016 # for another shell
enter_exec_leaf='leaf=/sys/fs/cgroup/exec
until { echo 0 >$leaf/cgroup.procs; } 2>/dev/null || [ ! -d $leaf ]; do leaf=$leaf/system; done
exec "$0" "$@"'

in_member() { (exec_in_member "$@"); }

controller_answers() {
  SLURM_CONF=$dir/etc/slurm.conf timeout 5 scontrol ping 2>/dev/null | grep -q ' is UP'
}

daemon_runs() { # MEMBER NAME
  local pid name path
  path=$(cgroup_paths "$1" | head -n 1)
  while read -r pid; do
    { read -r name <"/proc/$pid/comm"; } 2>/dev/null || continue
    [[ $name != "$2" ]] || return 0
  done < <(find "$path" -name cgroup.procs -exec cat {} + 2>/dev/null)
  return 1
}

# Whether the last step of a member's start failed, or went well but the daemon died since.
daemon_failed() { # MEMBER NAME
  [[ ! -e $dir/state/failed.$1 ]] || return 0
  [[ -e $dir/state/started.$1 ]] && ! daemon_runs "$1" "$2"
}

controller_settled() { daemon_failed ctl slurmctld || controller_answers; }

wait_for_controller() { # SECONDS
  { poll_for "$1" controller_settled && ! daemon_failed ctl slurmctld; } || {
    show_log_tail "$dir/log/boot-ctl.log"
    show_log_tail "$dir/log/slurmctld.log"
    die "slurmctld does not answer"
  }
}

nodes_are_idle() {
  local states
  states=$(SLURM_CONF=$dir/etc/slurm.conf timeout 5 sinfo -h -a -N -o '%N %T' 2>/dev/null) || return 1
  # A node has a line for each of its partitions.
  (($(sort -u <<<"$states" | grep -c ' idle$') == nodes))
}

failed_node() {
  local i
  for ((i = 1; i <= nodes; i++)); do
    if daemon_failed "n$i" slurmd; then
      echo "n$i"
      return
    fi
  done
  return 1
}

nodes_settled() { nodes_are_idle || failed_node >/dev/null; }

wait_for_nodes() { # SECONDS
  local member
  if ! poll_for "$1" nodes_settled || member=$(failed_node); then
    SLURM_CONF=$dir/etc/slurm.conf timeout 5 sinfo -N -l >&2 || true
    show_log_tail "$dir/log/boot-${member:-n1}.log"
    show_log_tail "$dir/log/slurmd-${member:-n1}.log"
    die "not all nodes became idle"
  fi
}

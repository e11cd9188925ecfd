# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# The commands that the user types.

check_machine() {
  local program missing=()
  for program in ip unshare nsenter setpriv pivot_root munged slurmctld slurmd sinfo; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  if ((accounting)); then
    for program in slurmdbd mariadbd mariadb-install-db sacctmgr; do
      command -v "$program" >/dev/null || missing+=("$program")
    done
  fi
  ((${#missing[@]} == 0)) || die "not installed: ${missing[*]}"
  unshare --mount --net --pid --fork --cgroup true 2>/dev/null ||
    die "this machine does not let root make namespaces"
}

# Sockets in DIR have paths of at most 107 bytes.
claim_directory() {
  mkdir -p -- "$dir" || die "cannot make the directory $dir"
  dir=$(realpath -- "$dir")
  ((${#dir} <= 80)) || die "the path $dir is longer than 80 characters"
  [[ $dir =~ ^[A-Za-z0-9/._+-]+$ ]] ||
    die "the path $dir has characters other than letters, digits and ./_+-"
  [[ $dir != / && ! -e $dir/state ]] ||
    die "$dir already holds a cluster; stop it with 'minicluster down --dir $dir' first"
  [[ -e $dir/.minicluster || -z $(ls -A -- "$dir") ]] ||
    die "$dir is neither empty nor a former cluster's directory"
  mkdir -- "$dir/state" || die "$dir already holds a cluster"
  : >"$dir/.minicluster"
  rm -f -- "$dir/.suite"
  [[ -z $suite ]] || printf '%s\n' "$suite" "${MC_SUITES:-}" >"$dir/.suite"
  chmod 755 "$dir"
  rm -rf -- "${dir:?}"/{etc,log,run,spool}
  mkdir -p "$dir"/{etc,log,run,spool/ctld,shared/home}
}

abandon_up() { # STATUS
  trap '' INT TERM HUP
  { kill -KILL -- "-$starter" && wait "$starter"; } 2>/dev/null || true
  warn "removing what was started; its logs are in $dir/log"
  remove_cluster || true
  exit "$1"
}

# Also when up was killed and its work goes on.
stop_starter() {
  local pid
  pid=$(member_pid starter) || return 0
  kill -KILL -- "-$pid" 2>/dev/null || true
  { poll_for 10 starter_is_gone; } 2>/dev/null || warn "a process of 'minicluster up' does not die"
}

starter_is_gone() { ! member_pid starter >/dev/null; }

# A process group of its own does the work, so that a signal finds this shell only waiting and
# everything half done can be killed before it is removed.
command_up() {
  local began=${EPOCHREALTIME/[.,]/} starter
  [[ -z $slurm_conf || -r $slurm_conf ]] || die "cannot read $slurm_conf"
  [[ -z $bellows_conf || -r $bellows_conf ]] || die "cannot read $bellows_conf"
  check_machine
  find_builddir
  check_plugins
  detect_cgroups
  claim_directory
  set -m
  start_cluster </dev/null &
  set +m
  starter=$!
  trap 'abandon_up 130' INT
  trap 'abandon_up 143' TERM
  trap 'abandon_up 129' HUP
  wait "$starter" || abandon_up 1
  trap - INT TERM HUP
  rm -f -- "$dir/state/pid.starter"
  began=$((${EPOCHREALTIME/[.,]/} - began))
  say "ready: $nodes nodes, $gpus GPUs each, in $((began / 1000000)).$((began / 100000 % 10)) s"
}

start_cluster() {
  local member all pid=$BASHPID
  echo "$pid $(start_time "$pid")" >"$dir/state/pid.starter"
  claim_id
  daemon_environment=("${environment[@]}")
  save_state
  write_configuration
  make_cluster_cgroup
  all=$(members)
  for member in $all; do create_member "$member"; done
  connect_member ctl
  start_member ctl
  ((!accounting)) || say "starting the database and slurmdbd"
  for member in $all; do [[ $member == ctl ]] || connect_member "$member"; done
  wait_for_controller 300
  for member in $all; do [[ $member == ctl ]] || start_member "$member"; done
  wait_for_nodes 300
  if ((modelstore)); then
    for ((node = 1; node <= nodes; node++)); do start_modeld; done
  fi
  ((!elastic)) || start_bellowsd
}

remove_cluster() {
  local member failed=0
  stop_starter
  [[ -r $dir/state/vars ]] && load_state
  if [[ -r $dir/state/vars ]]; then
    for member in $(members); do destroy_member "$member" || failed=1; done
    remove_cgroup || failed=1
    ((cgroup_version == 1)) || with_controllers_locked restore_controllers
  fi
  if [[ -r $dir/state/id ]]; then
    id=$(<"$dir/state/id")
    remove_network
  fi
  ((!failed)) || return 1
  rm -rf -- "$dir"/{state,run,spool}
}

command_down() {
  local given=$dir
  dir=$(realpath -e -- "$dir" 2>/dev/null) || die "there is no cluster in '$given'"
  [[ -e $dir/.minicluster ]] || die "there is no cluster in '$given'"
  remove_cluster || die "some of the cluster in $dir could not be removed; try again"
  ((!purge)) || rm -rf -- "$dir"
}

# Sets `fields` to those of a user's line in the cluster's passwd. Tests run exec all the time: a
# program for each field would take as long as many a command.
find_user() { # USER
  while IFS=: read -r -a fields; do
    [[ ${fields[0]} != "$1" ]] || return 0
  done <"$dir/etc/passwd"
  die "the cluster has no user '$1'"
}

command_exec() {
  local member=ctl home path fields=() wrapper=()
  load_state
  if [[ -n $node ]]; then
    check_node_number
    member=n$node
  fi
  user=${user:-alice}
  find_user "$user"
  home=${fields[5]}
  [[ $user != root ]] || home=$dir/shared/home/root
  path=/usr/local/bin:/usr/bin:/bin
  [[ $user != root ]] || path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  [[ -z $builddir ]] || path=$(programs):$path
  if [[ -n $skew ]]; then
    command -v faketime >/dev/null || die "--skew needs the package faketime"
    [[ $skew == [-+]* ]] || skew=+$skew
    wrapper=(faketime --exclude-monotonic -f "${skew}s")
  fi
  # Open MPI's ranks spin while they wait. Where the nodes' CPUs are one machine's, that takes the
  # processor from the rank waited for, unless they yield it.
  # shellcheck disable=SC2016
  exec_in_member "$member" setpriv --reuid="$user" --regid="${fields[3]}" --init-groups \
    --pdeathsig=KILL env -i PATH="$path" SLURM_CONF="$dir/etc/slurm.conf" USER="$user" \
    LOGNAME="$user" HOME="$home" SHELL="${fields[6]:-}" LANG="${LANG:-C.UTF-8}" TERM="${TERM:-dumb}" \
    OMPI_MCA_mpi_yield_when_idle=1 \
    "${environment[@]}" /bin/sh -c 'cd -- "$HOME" && exec "$@"' exec "${wrapper[@]}" "${arguments[@]}"
}

command_env() {
  load_state
  printf 'export SLURM_CONF=%q\n' "$dir/etc/slurm.conf"
  # shellcheck disable=SC2016
  [[ -z $builddir ]] || printf 'export PATH=%q:"$PATH"\n' "$(programs)"
}

command_status() {
  local member state
  load_state
  for member in $(members); do
    if ! member_pid "$member" >/dev/null; then
      state=dead
    elif cgroup_is_frozen "$member"; then
      state=paused
    elif link_is_cut "$member"; then
      state="cut"
    else
      state=up
    fi
    printf '%-4s %-15s %s\n' "$member" "$(member_address "$member")" "$state"
  done
  if controller_answers; then echo "slurmctld answers"; else echo "slurmctld does not answer"; fi
}

need_node() {
  load_state
  check_node_number
  member_pid "n$node" >/dev/null || die "n$node is not running"
}

command_kill_node() {
  need_node
  destroy_member "n$node"
}

command_start_node() {
  load_state
  check_node_number
  ! member_pid "n$node" >/dev/null || die "n$node is already running"
  destroy_member "n$node"
  create_member "n$node"
  connect_member "n$node"
  start_member "n$node"
  wait_for_daemons "n$node"
  ((!modelstore)) || start_modeld
}

command_pause_node() {
  need_node
  freeze_cgroup "n$node" 1
  poll_for 10 cgroup_is_frozen "n$node" || die "n$node could not be paused"
}

command_resume_node() {
  need_node
  freeze_cgroup "n$node" 0
}

command_cut_node() {
  need_node
  ip link set dev "$(link_name "n$node")" down
}

command_heal_node() {
  need_node
  ip link set dev "$(link_name "n$node")" up
}

command_stop_ctld() {
  load_state
  # shellcheck disable=SC2016
  in_member ctl /bin/bash -c '
    read -r pid 2>/dev/null </run/slurmctld.pid && kill -0 "$pid" 2>/dev/null || exit 3
    kill -s "$1" "$pid" || exit 1
    [[ $1 == TERM || $1 == KILL || $1 == INT ]] || exit 0
    for ((i = 0; i < 1000; i++)); do
      [[ -e /proc/$pid ]] || exit 0
      sleep 0.02
    done
    exit 4' - "${signal#SIG}" || case $? in
      3) die "slurmctld is not running" ;;
      *) die "slurmctld did not stop" ;;
    esac
}

bellowsd_pid() { in_member ctl pgrep --exact bellowsd; }

command_stop_bellowsd() {
  local pid
  load_state
  pid=$(bellowsd_pid) || die "bellowsd is not running"
  in_member ctl kill -s "$signal" "$pid"
  [[ ${signal#SIG} == @(TERM|KILL|INT) ]] || return 0
  poll_for 20 bellowsd_is_gone || die "bellowsd did not stop"
}

bellowsd_is_gone() { ! bellowsd_pid >/dev/null; }

command_start_bellowsd() {
  load_state
  ((elastic)) || die "the cluster was not started with --elastic"
  bellowsd_is_gone || die "bellowsd is already running"
  start_bellowsd
}

# It listens once the process is up; who asks it before that asks again.
start_bellowsd() {
  # shellcheck disable=SC2016
  in_member ctl /bin/sh -c 'exec setsid setpriv --reuid=slurm --regid=slurm --clear-groups "$@" &' start \
    env -i PATH=/usr/bin:/bin SLURM_CONF="$dir/etc/slurm.conf" "${daemon_environment[@]}" \
    "$(bellowsd_program)" </dev/null >>"$dir/log/bellowsd.log" 2>&1
  poll_for 20 bellowsd_pid >/dev/null || {
    show_log_tail "$dir/log/bellowsd.log"
    die "bellowsd did not start"
  }
}

modeld_pid() { in_member "n$node" pgrep --exact bellows-modeld; }
modeld_is_gone() { ! modeld_pid >/dev/null; }

# Its keeper stays, as it does for systemd.
command_stop_modeld() {
  local pid
  need_node
  pid=$(modeld_pid) || die "bellows-modeld is not running on n$node"
  in_member "n$node" kill -s "$signal" "$pid"
  [[ ${signal#SIG} == @(TERM|KILL|INT) ]] || return 0
  poll_for 20 modeld_is_gone || die "bellows-modeld did not stop"
}

command_start_modeld() {
  need_node
  ((modelstore)) || die "the cluster was not started with --modelstore"
  modeld_is_gone || die "bellows-modeld is already running on n$node"
  start_modeld
}

modeld_is_ready() { in_member "n$node" test -S /run/bellows-models/control; }

# As etc/bellows-modeld.service has it, with a user that every machine has.
# etc/modeld.args has more arguments, one on each line.
start_modeld() {
  local program helpers more=()
  [[ ! -e $dir/etc/modeld.args ]] || mapfile -t more <"$dir/etc/modeld.args"
  read -r program helpers < <(modeld_programs)
  in_member "n$node" install -d -o daemon -g daemon -m 755 /run/bellows-models
  in_member "n$node" rm -f /run/bellows-models/control
  # shellcheck disable=SC2016
  in_member "n$node" /bin/sh -c 'exec setsid setpriv --reuid=daemon --regid=daemon --clear-groups \
    --inh-caps=-all,+setuid,+setgid --ambient-caps=-all,+setuid,+setgid --bounding-set=-all,+setuid,+setgid \
    --no-new-privs "$@" &' start env -i PATH=/usr/bin:/bin "${daemon_environment[@]}" "$program" \
    --budget=256M --small-pages --helpers="$helpers" --site="$dir/etc/bellows.yaml" \
    --remote="$dir/etc/models-remote.conf" --peers="n[1-$nodes]" --peer-name="n$node" --peer-wait=5 \
    --munge-socket="$dir/run/munge.socket" "${more[@]}" \
    </dev/null >>"$dir/log/modeld-n$node.log" 2>&1
  poll_for 20 modeld_is_ready || {
    show_log_tail "$dir/log/modeld-n$node.log"
    die "bellows-modeld did not start on n$node"
  }
}

command_start_ctld() {
  load_state
  local ignore=()
  ! controller_answers || die "slurmctld is already running"
  # With a database, 26.05 does not start again after a kill before it has first saved the usage.
  if [[ -d $dir/spool/database && ! -e $dir/spool/ctld/assoc_usage ]]; then
    [[ ! $(slurmctld -V) =~ \ (2[6-9]|[3-9].)\. ]] || ignore=(-i)
  fi
  in_member ctl env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    SLURM_CONF="$dir/etc/slurm.conf" "${daemon_environment[@]}" slurmctld "${ignore[@]}" -f "$dir/etc/slurm.conf" \
    </dev/null >>"$dir/log/boot-ctl.log" 2>&1 || die "slurmctld did not start"
  wait_for_controller 60
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Everything in DIR/etc: Slurm's configuration, the users, and the defaults of Bellows.

find_slurm_plugins() {
  local path
  for path in /usr/lib/*/slurm-wlm /usr/lib/*/slurm /usr/lib64/slurm /usr/lib/slurm /usr/local/lib/slurm; do
    [[ ! -e $path/select_cons_tres.so ]] || { echo "$path"; return; }
  done
  die "Slurm's plugins are in none of the usual places below /usr/lib"
}

# An installed minicluster has the file "installed", with MC_PREFIX, MC_PLUGINS, MC_PROGRAMS and MC_HELPERS. The
# installation stands for a build then, unless another is named.
if [[ -r $MC_LIB/installed ]]; then
  # shellcheck source=/dev/null
  . "$MC_LIB/installed"
fi
is_installed() { [[ -n ${MC_PREFIX:-} && $builddir == "$MC_PREFIX" ]]; }
admission_plugins() { if is_installed; then echo "$MC_PLUGINS"; else echo "$builddir/jobsubmit/.libs"; fi; }
spank_plugins() { if is_installed; then echo "$MC_PLUGINS"; else echo "$builddir/spank/.libs"; fi; }
bellowsd_program() { if is_installed; then echo "$MC_PREFIX/sbin/bellowsd"; else echo "$builddir/elastic/bellowsd"; fi; }
# bellows-modeld, and the folder of the programs that it starts.
modeld_programs() {
  if is_installed; then echo "$MC_PREFIX/sbin/bellows-modeld $MC_HELPERS"; else echo "$builddir/modelstore/bellows-modeld $builddir/modelstore"; fi
}
programs() { if is_installed; then echo "$MC_PROGRAMS"; else echo "$builddir/launcher:$builddir/paramserver:$builddir/pool:$builddir/image"; fi; }

find_builddir() {
  local path
  if [[ -n $builddir ]]; then
    [[ -d $builddir ]] || die "--builddir $builddir is not a directory"
    builddir=$(realpath -- "$builddir")
    return
  fi
  if [[ -n ${MC_PREFIX:-} ]]; then
    builddir=$MC_PREFIX
    return
  fi
  for path in "$MC_SOURCE/build" "$MC_SOURCE"; do
    [[ ! -e $path/config.status ]] || { builddir=$path; return; }
  done
}

# Above the build directory minicluster makes a way for the users; from there on it must be open.
check_readable() { # FILE
  local path=$1
  [[ $(stat -L -c %A -- "$path") == *r?? ]] || die "$path is not readable for other users than root"
  while [[ $path != "$builddir" && $path == /*/* ]]; do
    path=${path%/*}
    [[ $(stat -c %A -- "$path") == *[xt] ]] ||
      die "$path is closed to other users than root; allow them in with chmod o+x"
  done
}

check_plugins() {
  local path
  ((plugins)) || return 0
  [[ -n $builddir ]] ||
    die "Bellows is not built yet; build it, give --builddir, or use --no-plugins"
  for path in "$(admission_plugins)/job_submit_bellows.so" "$(spank_plugins)/spank_bellows.so"; do
    [[ -e $path ]] || die "$path does not exist; build it first or use --no-plugins"
    check_readable "$path"
  done
}

# Nodes claim more processors than the machine may have: Slurm then runs that many tasks.
node_cpus() { echo $((gpus > 4 ? 2 * gpus : 8)); }

# The NVIDIA minor number of a node's GPU: nodes get GPUs of their own when there are enough.
gpu_minor() { # NODE INDEX
  local real=(/dev/nvidia[0-9]*)
  [[ -e ${real[0]} ]] || real=()
  if ((${#real[@]} >= nodes * gpus)); then
    echo $((($1 - 1) * gpus + $2))
  else
    echo "$2"
  fi
}

# bellowsd never runs as root.
slurm_user() { if ((elastic)); then echo slurm; else echo root; fi; }

write_slurm_conf() {
  local i plugin_path mpi=pmix
  plugin_path=$(find_slurm_plugins)
  # Debian builds 26.05 without it.
  [[ -e $plugin_path/mpi_pmix.so ]] || mpi=none
  cat <<CONF
ClusterName=bellows
SlurmctldHost=ctl($(member_address ctl))
SlurmUser=$(slurm_user)
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.socket
CryptoType=crypto/munge
StateSaveLocation=$dir/spool/ctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmctldDebug=info
SlurmdSpoolDir=/run/slurmd
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile=$dir/log/slurmd-%n.log
SlurmdDebug=info
SlurmdParameters=config_overrides
SlurmdTimeout=10
MinJobAge=3600
ReturnToService=2
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=2
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
PrologFlags=Contain
MpiDefault=$mpi
JobAcctGatherType=jobacct_gather/none
PropagateResourceLimitsExcept=MEMLOCK
CONF
  if ((plugins)); then
    echo "PluginDir=$plugin_path:$(admission_plugins)"
    echo "PlugStackConfig=$dir/etc/plugstack.conf"
    echo "JobSubmitPlugins=bellows"
  else
    echo "PlugStackConfig=$dir/etc/plugstack.conf"
  fi
  if ((accounting)); then
    echo "AccountingStorageType=accounting_storage/slurmdbd"
    echo "AccountingStorageHost=$(member_address ctl)"
    echo "AccountingStoragePass=$dir/run/munge.socket"
    echo "AccountingStorageEnforce=associations,limits,qos"
    echo "AccountingStoreFlags=job_comment"
    echo "AccountingStorageTRES=gres/gpu"
  fi
  ((gpus == 0)) || echo "GresTypes=gpu"
  for ((i = 1; i <= nodes; i++)); do
    echo "NodeName=n$i NodeAddr=$(member_address "n$i") NodeHostname=n$i" \
      "Sockets=1 CoresPerSocket=$(node_cpus) ThreadsPerCore=1 RealMemory=8192" \
      "$( ((gpus == 0)) || echo "Gres=gpu:$gpus ")State=UNKNOWN"
  done
  echo "PartitionName=main Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE State=UP"
}

# The user's own lines come last, so that they win. AuthInfo must keep naming our munged.
append_slurm_conf() { # FILE
  local line
  while IFS= read -r line || [[ -n $line ]]; do
    if [[ $line =~ ^[[:space:]]*[Aa]uth[Ii]nfo= && $line != *socket=* ]]; then
      line="$line,socket=$dir/run/munge.socket"
    fi
    printf '%s\n' "$line"
  done <"$1"
}

write_gres_conf() {
  local i g
  for ((i = 1; i <= nodes; i++)); do
    for ((g = 0; g < gpus; g++)); do
      echo "NodeName=n$i Name=gpu File=/dev/nvidia$(gpu_minor "$i" "$g")"
    done
  done
}

write_cgroup_conf() {
  cat <<CONF
CgroupPlugin=cgroup/v$cgroup_version
ConstrainDevices=yes
ConstrainCores=no
ConstrainRAMSpace=no
CONF
  ((cgroup_version == 1)) || echo "IgnoreSystemd=yes"
}

# Test users: NAME UID GROUP GID.
test_users() {
  echo "alice 20001 vision 20101"
  echo "bob 20002 vision 20101"
  echo "carol 20003 speech 20102"
}

write_users() {
  local name uid group gid names="alice|bob|carol" groups="vision|speech"
  grep -vE "^($names):" /etc/passwd >"$dir/etc/passwd"
  grep -vE "^($groups):" /etc/group >"$dir/etc/group"
  printf 'vision:x:20101:\nspeech:x:20102:\n' >>"$dir/etc/group"
  while read -r name uid group gid; do
    # Without a password to look up: these users are not in /etc/shadow, and sbatch --export=NONE makes
    # slurmd become them with su.
    echo "$name:*:$uid:$gid:$name of $group:$dir/shared/home/$name:/bin/bash" >>"$dir/etc/passwd"
    install -d -o "$uid" -g "$gid" -m 700 "$dir/shared/home/$name"
  done < <(test_users)
  install -d -m 700 "$dir/shared/home/root"
  install -d -m 1777 "$dir/shared/checkpoints"
}

write_hosts() {
  local i
  echo "127.0.0.1 localhost"
  echo "$(member_address ctl) ctl"
  for ((i = 1; i <= nodes; i++)); do echo "$(member_address "n$i") n$i"; done
}

# Jobs have a /tmp of their own; a cluster that lies there, or its programs, must be in it all the
# same.
kept_directories() {
  local path kept=()
  for path in "$dir" "$builddir" "$MC_SOURCE"; do
    case $path in
      /tmp/* | /var/tmp/* | /dev/shm/*) kept+=("$path") ;;
    esac
  done
  ((${#kept[@]} == 0)) || (IFS=: && echo "tmp_keep=${kept[*]}")
}

default_bellows_conf() {
  local mode=manual
  ((!elastic)) || mode=auto
  cat <<CONF
version: 1
$( ((!elastic)) || echo "controller: {addresses: [\"ctl:6830\"], dwell: 5, restarts_per_hour: 60}")
defaults: {gpus: {elastic: $mode}}
checkpoint_dir: $dir/shared/checkpoints/%u/%j
frameworks:
  digits: {versions: ["1.0"], default: "1.0"}
  plain: {versions: ["1.0"], default: "1.0"}
tenants:
  vision:
    accounts: [vision]
    gpus: {min: 1, max: $((nodes * gpus > 0 ? nodes * gpus : 1)), start: 1, step: 1}
  speech:
    accounts: [speech]
    gpus: {min: 1, max: $((nodes * gpus > 0 ? nodes * gpus : 1)), start: 1, step: 1}
default_tenant: vision
CONF
}

write_configuration() {
  write_slurm_conf >"$dir/etc/slurm.conf"
  [[ -z $slurm_conf ]] || append_slurm_conf "$slurm_conf" >>"$dir/etc/slurm.conf"
  write_gres_conf >"$dir/etc/gres.conf"
  write_cgroup_conf >"$dir/etc/cgroup.conf"
  write_hosts >"$dir/etc/hosts"
  write_users
  : >"$dir/etc/plugstack.conf"
  if ((plugins)); then
    echo "required $(spank_plugins)/spank_bellows.so $(kept_directories) $spank_args" \
      >"$dir/etc/plugstack.conf"
    if [[ -n $bellows_conf ]]; then
      install -m 644 -- "$bellows_conf" "$dir/etc/bellows.yaml"
    else
      default_bellows_conf >"$dir/etc/bellows.yaml"
    fi
  fi
  (umask 077 && head -c 128 /dev/urandom >"$dir/etc/munge.key")
}

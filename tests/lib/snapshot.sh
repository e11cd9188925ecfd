# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# What a run could leave behind on a machine, as sorted lines, to compare before and after. Files and
# processes of people are not ours: a run works as root, as the services' users, and as the users of
# its own clusters.
snapshot_last_system_uid=999
snapshot_first_cluster_uid=20000
snapshot_last_cluster_uid=29999

# Directories whose content changes by itself or belongs to the system's own records.
snapshot_ignored=(/proc /sys /dev /run/systemd /run/udev /run/log /run/user /run/mount /var/log /var/cache /var/lib/apt
  /var/lib/systemd /var/lib/dpkg)

# File systems whose files are listed.
snapshot_roots=(/ /run /tmp /dev/shm /var/tmp)

# All processes but the kernel's, this shell's ($$), those of BELLOWS_BESIDE, which runtests has run
# at the same time, those below these, udev's workers, which come and go, and the dead ones that the
# machine's init has yet to collect.
snapshot_processes() {
  ps -e -o pid=,ppid=,stat=,uid=,args= --no-headers |
    awk -v most="$snapshot_last_system_uid" -v first="$snapshot_first_cluster_uid" -v last="$snapshot_last_cluster_uid" '
      $3 !~ /^Z/ && ($4 <= most || ($4 >= first && $4 <= last)) {$3 = $4 = ""; print}' |
    grep -v ' (udev-worker)$' | awk -v self="$$" -v beside="${BELLOWS_BESIDE:-$$}" '
    {pid[NR] = $1; parent[$1] = $2; $1 = $2 = ""; sub(/^ +/, ""); args[NR] = substr($0, 1, 120)}
    END {
      for (i = 1; i <= NR; i++) {
        for (p = pid[i]; p != self && p != beside && p != 2 && p > 1 && (p in parent); p = parent[p]);
        if (p != self && p != beside && p != 2) print "process " pid[i] " " args[i]
      }
    }'
}

snapshot_files() {
  local own=$1 ignored prune=() root
  for ignored in "${snapshot_ignored[@]}" "$own"; do
    prune+=(-o -path "$ignored")
  done
  for root in "${snapshot_roots[@]}"; do
    find "$root" -xdev \( "${prune[@]:1}" \) -prune -o \
      \( -uid "-$((snapshot_last_system_uid + 1))" -o -uid "+$((snapshot_first_cluster_uid - 1))" \
      -uid "-$((snapshot_last_cluster_uid + 1))" \) -printf 'file %p\n' 2>/dev/null
  done
}

# The kernel keeps a node for each loop device that was ever needed.
# machine_snapshot OWN: processes, mounts, network namespaces, links, devices, cgroups and files,
# leaving out what lies below the directory OWN.
machine_snapshot() {
  local own=$1
  {
    snapshot_processes
    awk '{print "mount " $5}' /proc/self/mountinfo
    find /run/netns -mindepth 1 -printf 'netns %p\n' 2>/dev/null
    lsns -n -t net -o NS 2>/dev/null | sed 's/^ */netns /'
    ip -o link | awk '{sub(/@.*/, "", $2); sub(/:$/, "", $2); print "link " $2}'
    find /dev -xdev \( -type b -o -type c \) ! -path '/dev/pts/*' ! -path '/dev/vcs*' ! -path '/dev/loop[0-9]*' -printf 'device %p\n'
    find /sys/fs/cgroup -type d ! -path '*/system.slice/*' ! -path '*/user.slice/*' -printf 'cgroup %p\n' 2>/dev/null
    snapshot_files "$own"
  } | grep -vF " $own/" | sort -T "$own" -u  # its temporary files would be listed too
}

# machine_difference BEFORE AFTER: what the second snapshot has that the first had not, and which
# mounts, links and devices are gone. Status 0 if nothing.
machine_difference() {
  local left gone
  left=$(comm -13 "$1" "$2" | sed 's/^/left behind: /')
  gone=$(comm -23 "$1" "$2" | grep -E '^(mount|link|device) ' | sed 's/^/gone: /')
  [ -n "$left$gone" ] || return 0
  printf '%s\n' "$left" "$gone" | sed '/^$/d'
  return 1
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Directory trees that hold a whole Debian system: how this checkout gets into one, and how a
# command runs there. The caller sets: top (source directory).

# What git tracks or would track, as it lies in the working tree.
checkout_files() {
  (cd "$top" && git ls-files --cached --others --exclude-standard |
    while IFS= read -r file; do [ ! -e "$file" ] || printf '%s\n' "$file"; done | sort)
}

# The same as a stream.
checkout() {
  checkout_files | tar -c -C "$top" --verbatim-files-from --no-recursion -T -
}

install_checkout() { # ROOT
  mkdir -p "$1/root/bellows"
  checkout | tar -x -p -C "$1/root/bellows"
}

# The same for a tree that has an older checkout: files that have gone since go there too, and what
# was generated stays.
renew_checkout() { # ROOT
  local list=$1/root/files
  checkout_files > "$list.new" || return 1
  comm -13 "$list.new" "$list" 2> /dev/null |
    (cd "$1/root/bellows" 2> /dev/null && tr '\n' '\0' | xargs -0 -r rm -f)
  mv "$list.new" "$list" && install_checkout "$1"
}

# The proxy that apt uses on this machine, as a line of a root's configuration.
proxy_setting() {
  local proxy=${http_proxy-}
  [ -n "$proxy" ] || proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy)
  [ -z "$proxy" ] || printf 'Acquire::http::Proxy "%s";\n' "$proxy"
}

# Becomes a command that sees a tree as its root, with mounts of its own; the network, the cgroups
# and the machine's processes are there as before. Files and directories given first are seen there
# too, in the same places: enter_root ROOT [PATH]... -- CMD ARGS...
enter_root() {
  # shellcheck disable=SC2016
  exec unshare --mount --propagation private bash -c '
    root=$1; shift
    mount --bind "$root" "$root" && mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" &&
      mount --rbind /dev "$root/dev" && mount -t tmpfs tmpfs "$root/dev/shm" && mount -t tmpfs tmpfs "$root/run" &&
      mount --bind /etc/resolv.conf "$root/etc/resolv.conf" || exit 125
    while [ "$1" != -- ]; do
      if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$root${1%/*}" && : >> "$root$1"; fi
      mount --rbind "$1" "$root$1" || exit 125
      shift
    done
    shift
    # Not by chroot: whoever enters a mount namespace from there is at the root of this machine.
    cd "$root" && pivot_root . . && umount -l . || exit 125
    cd /root/bellows && exec env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' bash "$@"
}

# Runs a command in a tree as if it were the machine: in_chroot ROOT CMD ARGS...
# The processes, the mounts and /dev/shm are its own; the network and cgroups are this machine's.
in_chroot() {
  local root=$1
  shift
  mkdir -p "$root/root/bellows"
  unshare --pid --fork --kill-child --uts --ipc bash -c "$(declare -f enter_root)
    hostname fresh && enter_root \"\$@\"" bash "$root" -- bash -c '"$@"; exit $?' bash "$@"
}

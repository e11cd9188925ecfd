# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Makes the systems that tests/fresh runs in. The caller sets: top, cache, build, here (this folder), work
# (a directory for this run), commands (array).

base_packages=systemd,systemd-sysv,udev,dbus,linux-image-cloud-amd64,initramfs-tools,iproute2,\
ca-certificates,kmod,procps,util-linux,e2fsprogs

# The proxy that apt uses on this machine, as a line of the guest's configuration.
proxy_setting() {
  local proxy=${http_proxy-}
  [ -n "$proxy" ] || proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy)
  [ -z "$proxy" ] || printf 'Acquire::http::Proxy "%s";\n' "$proxy"
}

# A Debian 12 with nothing but its base, systemd and a kernel: in $cache/base.
bootstrap() {
  local root=$cache/base.new
  rm -rf "$root"
  mmdebstrap --variant=minbase --include="$base_packages" bookworm "$root" || return 1
  echo '/dev/vda / ext4 defaults,noatime 0 1' > "$root/etc/fstab"
  echo fresh > "$root/etc/hostname"
  printf '127.0.0.1 localhost\n127.0.1.1 fresh\n' > "$root/etc/hosts"
  printf '[Match]\nName=en* eth*\n[Network]\nDHCP=ipv4\n' > "$root/etc/systemd/network/80-guest.network"
  proxy_setting > "$root/etc/apt/apt.conf.d/90host"
  rm -f "$root/etc/resolv.conf"
  echo 'nameserver 10.0.2.3' > "$root/etc/resolv.conf"
  install -m 755 "$here/guest" "$root/usr/local/sbin/bellows-fresh-guest"
  install -m 644 "$here/fresh.service" "$root/etc/systemd/system/bellows-fresh.service"
  systemctl --root="$root" enable systemd-networkd bellows-fresh.service || return 1
  cp "$root"/boot/vmlinuz-* "$cache/kernel" && cp "$root"/boot/initrd.img-* "$cache/initrd" || return 1
  base_inputs > "$root.made-from"
  rm -rf "$cache/base"
  mv "$root" "$cache/base" && mv "$root.made-from" "$cache/base.made-from"
}

# What the base depends on: its recipe here and the files put into it.
base_inputs() {
  { declare -f bootstrap && cat "$here/guest" "$here/fresh.service" && echo "$base_packages"; } | sha256sum
}

make_base() {
  local from
  from=$(base_inputs)
  if [ -d "$cache/base" ] && [ "$(cat "$cache/base.made-from" 2>/dev/null)" = "$from" ]; then
    already "Debian 12 base system"
    return
  fi
  rm -rf "$cache/prepared"
  step "Making a Debian 12 base system" bootstrap bootstrap
}

# What git tracks or would track, as it lies in the working tree.
checkout_files() {
  (cd "$top" && git ls-files --cached --others --exclude-standard |
    while IFS= read -r file; do [ ! -e "$file" ] || printf '%s\n' "$file"; done | sort)
}

# The same as a stream.
checkout() {
  checkout_files | tar -c -C "$top" --verbatim-files-from --no-recursion -T -
}

# Runs a command in a directory tree as if it were the machine: in_chroot ROOT CMD ARGS...
# The processes, the mounts and /dev/shm are its own; the network and cgroups are this machine's.
in_chroot() {
  local root=$1
  shift
  mkdir -p "$root/root/bellows"
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child --uts --ipc --propagation private bash -c '
    root=$1; shift
    mount --bind "$root" "$root" && mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
      mount -t tmpfs tmpfs "$root/dev/shm" && mount -t tmpfs tmpfs "$root/run" &&
      mount --bind /etc/resolv.conf "$root/etc/resolv.conf" || exit 125
    hostname fresh
    # Not by chroot: whoever enters a mount namespace from there is at the root of this machine.
    cd "$root" && pivot_root . . && umount -l . || exit 125
    exec env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin \
      bash -c "cd /root/bellows && \"\$@\"" bash "$@"' bash "$root" "$@"
}

install_checkout() {
  mkdir -p "$1/root/bellows"
  checkout | tar -x -p -C "$1/root/bellows"
}

# The base with packages and build added, made natively, so that a slow guest need not do it.
prepare_tree() {
  if [ ! -d "$cache/prepared" ]; then
    rm -rf "$cache/prepared.new"
    cp -a "$cache/base" "$cache/prepared.new" && mv "$cache/prepared.new" "$cache/prepared" || return 1
  fi
  # Files that have gone since the last time; what was generated stays.
  checkout_files > "$work/files"
  comm -13 "$work/files" "$cache/prepared/root/files" 2>/dev/null |
    (cd "$cache/prepared/root/bellows" && tr '\n' '\0' | xargs -0 -r rm -f)
  cp "$work/files" "$cache/prepared/root/files" || return 1
  install_checkout "$cache/prepared" && in_chroot "$cache/prepared" ./runtests --setup &&
    rm -f "$cache"/prepared/var/cache/apt/archives/*.deb || return 1
  [[ ${commands[*]} != *./runtests ]] || in_chroot "$cache/prepared" make -C build -j2 check TESTS=
}

# disk_from TREE FILE
disk_from() {
  rm -f "$2"
  truncate -s 24G "$2" && mkfs.ext4 -q -F -d "$1" "$2"
}

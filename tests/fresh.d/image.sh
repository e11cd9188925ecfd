# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Makes the systems that tests/fresh runs in. The caller sets: top, suite, cache, build, here (this folder), work
# (a directory for this run), commands and environment (arrays).

base_packages=systemd,systemd-sysv,udev,dbus,linux-image-cloud-amd64,initramfs-tools,iproute2,\
ca-certificates,kmod,procps,util-linux,util-linux-extra,e2fsprogs

# A Debian with nothing but its base, systemd and a kernel: in $cache/base.
bootstrap() {
  local root=$cache/base.new source
  source=$(suite_source "$suite") || return 1
  rm -rf "$root"
  mmdebstrap --variant=minbase --include="$base_packages" "$suite" "$root" "$source" || return 1
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
    already "Base system of Debian's $suite"
    return
  fi
  rm -rf "$cache/prepared"
  step "Making a base system of Debian's $suite" bootstrap bootstrap
}

# The base with packages and build added, made natively, so that a slow guest need not do it.
prepare_tree() {
  if [ ! -d "$cache/prepared" ]; then
    rm -rf "$cache/prepared.new"
    cp -a "$cache/base" "$cache/prepared.new" && mv "$cache/prepared.new" "$cache/prepared" || return 1
  fi
  renew_checkout "$cache/prepared" && in_chroot "$cache/prepared" env "${environment[@]}" ./runtests --setup &&
    rm -f "$cache"/prepared/var/cache/apt/archives/*.deb || return 1
  [[ ${commands[*]} != *./runtests ]] || in_chroot "$cache/prepared" make -C build -j2 check TESTS=
}

# disk_from TREE FILE
disk_from() {
  rm -f "$2"
  truncate -s 24G "$2" && mkfs.ext4 -q -F -d "$1" "$2"
}

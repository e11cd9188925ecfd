# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Boots a guest with qemu. The caller sets: cache, work (a directory for this run), build.

# qemu's options for an accelerator: kvm or emulation.
accelerator() {
  case $1 in
    kvm) echo "-accel kvm -cpu host" ;;
    emulation) echo "-accel tcg,thread=multi,tb-size=1024 -cpu max" ;;
  esac
}

# Whether a stock Debian kernel starts under KVM here: some nested hypervisors offer /dev/kvm and
# can't run one.
kvm_works() {
  local console=$work/probe.console pid i
  [ -w /dev/kvm ] || return 1
  : > "$console"
  # shellcheck disable=SC2046
  timeout 60 qemu-system-x86_64 $(accelerator kvm) -m 512 -nographic -no-reboot -monitor none -nic none \
    -serial "file:$console" -kernel "$cache/kernel" -append 'console=ttyS0 panic=-1' > "$work/probe.log" 2>&1 &
  pid=$!
  for ((i = 0; i < 40; i++)); do
    if grep -qa 'Linux version' "$console"; then break; fi
    kill -0 "$pid" 2>/dev/null || break
    nap 0.5
  done
  kill "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
  grep -qa 'Linux version' "$console"
}

# Boots a disk and waits for the guest to power off: boot ACCELERATOR DISK LIMIT [stdio]
# The guest's command writes to $work/output; its files come back in $work/result.
boot() {
  local second=file:$work/output
  [ "${4-}" != stdio ] || second=stdio
  truncate -s 256M "$work/result.disk"
  # shellcheck disable=SC2046
  TMPDIR=$work timeout --foreground -k 10 "$3" qemu-system-x86_64 $(accelerator "$1") -smp 2 -m "${memory:-6144}" \
    -display none -no-reboot -monitor none -serial "file:$work/console" -serial "$second" \
    -kernel "$cache/kernel" -initrd "$cache/initrd" \
    -append 'root=/dev/vda rw console=ttyS0 quiet mitigations=off' \
    -drive "file=$2,format=raw,if=virtio,snapshot=on" \
    -drive "file=$work/payload.tar,format=raw,if=virtio,readonly=on" \
    -drive "file=$work/result.disk,format=raw,if=virtio" \
    -nic user,model=virtio-net-pci || return $?
  mkdir -p "$work/result"
  tar -x -C "$work/result" -f "$work/result.disk" 2>/dev/null
  rm -f "$work/result.disk"
  [ -s "$work/result/status" ] || return 125
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Installs the missing packages of tests/lib/packages and leaves no service running or enabled.
# The caller sets: top (source directory), build, may set long (for packages.long too), and sources common.sh.

policy=/usr/sbin/policy-rc.d
policy_saved=/usr/sbin/policy-rc.d.before-bellows
policy_mark='# Written by Bellows while it installs packages; removed right after.'

wanted_packages() {
  sed 's/#.*//' "$top/tests/lib/packages" ${long:+"$top/tests/lib/packages.long"} | tr -s '[:space:]' '\n' | sed '/^$/d'
}

missing_packages() {
  local have
  have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p')
  grep -vxF -f <(printf '%s\n' "$have") <(wanted_packages) || true
}

# Debian asks this file before it starts a service; 101 means no.
forbid_services() {
  allow_services
  if [ -e "$policy" ] || [ -L "$policy" ]; then
    mv "$policy" "$policy_saved"
  fi
  printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" > "$policy"
  chmod 755 "$policy"
}

# Puts back what was there before; also mends what an interrupted run left.
allow_services() {
  if [ -f "$policy" ] && grep -qxF "$policy_mark" "$policy"; then
    rm -f "$policy"
  fi
  if [ -e "$policy_saved" ] || [ -L "$policy_saved" ]; then
    mv -f "$policy_saved" "$policy"
  fi
}

# What starts by itself at boot: systemd units, and links of System V init.
enabled_services() {
  if command -v systemctl > /dev/null; then
    systemctl --root=/ list-unit-files --state=enabled --no-legend --no-pager 2>/dev/null |
      awk '{print "unit " $1}'
  fi
  find /etc/rc[2345].d -name 'S*' 2>/dev/null | sed -E 's,.*/S[0-9]*,init ,' | sort -u
}

disable_new_services() {
  local kind name
  comm -13 <(sort -u "$1") <(enabled_services | sort -u) | while read -r kind name; do
    echo "disabling $kind $name"
    case $kind in
      unit) systemctl --root=/ disable "$name" ;;
      init) update-rc.d "$name" disable ;;
    esac < /dev/null || return 1
  done
}

apt_get() {
  DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true NEEDRESTART_SUSPEND=1 \
    apt-get -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
    -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@"
}

# Interrupted or not, the machine gets its policy-rc.d back and keeps no new service.
install_guarded() {
  local before=$build/services.before rc=0
  enabled_services > "$before"
  forbid_services
  trap 'allow_services; disable_new_services "$build/services.before"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  apt_get --no-download install "$@" || rc=$?
  allow_services
  disable_new_services "$before" || rc=1
  trap - EXIT INT TERM HUP
  return "$rc"
}

install_packages() {
  local missing all bytes
  mkdir -p "$build"
  mapfile -t missing < <(missing_packages)
  if [ "${#missing[@]}" -eq 0 ]; then
    already "Debian packages"
    return
  fi
  [ "$(id -u)" -eq 0 ] || fail "packages are missing (${missing[*]}): run this as root, or install them yourself"
  STEP_MAY_FAIL=1 step "Fetching Debian's package lists" apt-update \
    apt_get -o APT::Update::Error-Mode=any update ||
    echo "    some lists could not be fetched: $(grep -m 1 -E '^(E|W|Err)' "$build/log/apt-update.log")"
  all=$(apt_get --simulate install "${missing[@]}" 2> "$build/log/apt-plan.log" | sed -n 's/^Inst \([^ ]*\).*/\1/p')
  [ -n "$all" ] || fail "apt can't install ${missing[*]}: $(grep -m 1 '^E' "$build/log/apt-plan.log"); \
is the network reachable, and are Debian's main archives in /etc/apt/sources.list?"
  bytes=$(apt_get --print-uris install "${missing[@]}" 2>/dev/null | awk "/^'/ {n += \$3} END {print n + 0}")
  mapfile -t all <<< "$all"
  printf '==> %d Debian packages are missing and will be installed (%d MB to download):\n' \
    "${#all[@]}" "$((bytes / 1000000))"
  printf '%s\n' "${all[@]}" | sort | paste -sd ' ' | fold -s -w 96 | sed 's/^/      /'
  printf '%s\n' "${all[@]}" >> "$build/installed-packages"
  STEP_MAY_FAIL=1 step "Downloading packages" apt-download apt_get --download-only install "${missing[@]}" ||
    fail "packages could not be downloaded; is the network reachable? $(last_line "$build/log/apt-download.log")"
  step "Installing packages; no service is started or enabled" apt-install install_guarded "${missing[@]}"
}

# The address of the archive from which this machine takes its own release: a mirror, perhaps.
apt_archive() {
  local codename
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  # shellcheck disable=SC2016  # apt's own variables
  apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' 2> /dev/null |
    awk -v release="$codename" '$1 == release {print $2; exit}'
}

# The key with which apt trusts that archive here, if its configuration names one: apt_key ADDRESS
apt_key() {
  cat /etc/apt/sources.list.d/*.sources 2> /dev/null | awk -v address="${1%/}" '
    BEGIN {RS = ""} index($0, address) && match($0, /Signed-By: *[^ \n]+/) {
      print substr($0, RSTART + 11, RLENGTH - 11); exit}' | tr -d ' '
}

is_suite_name() { [[ $1 =~ ^[a-z][a-z0-9-]*$ ]]; }

# The line of sources.list for a suite, from where this machine gets its own packages. The signature
# is checked, but not the date: testing's expires after a week, and mirrors may be further behind.
suite_source() { # SUITE
  local archive key
  archive=$(apt_archive)
  [ -n "$archive" ] || {
    echo "apt has no archive of this machine's release" >&2
    return 1
  }
  key=$(apt_key "$archive")
  echo "deb [${key:+signed-by=$key }check-valid-until=no] $archive $1 main"
}

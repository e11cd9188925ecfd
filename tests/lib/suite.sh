# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# A root directory for another Debian suite, with the packages of tests/lib/packages in that suite's
# versions and with this checkout, in build/newer/SUITE. The caller sets: top, build (directory for
# logs), and sources common.sh, apt.sh and root.sh.

suites_dir=${BELLOWS_NEWER_DIR:-$top/build/newer}
suite_root() { echo "$suites_dir/$1/root"; }

bootstrap_suite() { # SUITE
  local dir=$suites_dir/$1 source
  source=$(suite_source "$1") || return 1
  rm -rf "$dir/root.new"
  mmdebstrap --variant=minbase --include="$(wanted_packages | paste -sd ,),git,iproute2,kmod,udev,util-linux-extra" "$1" \
    "$dir/root.new" "$source" || return 1
  proxy_setting > "$dir/root.new/etc/apt/apt.conf.d/90host"
  rm -f "$dir/root.new/etc/resolv.conf"
  : > "$dir/root.new/etc/resolv.conf"
  rm -rf "$dir/root"
  mv "$dir/root.new" "$dir/root"
}

# Whether the suite has other versions of the wanted packages than its root, or more are wanted.
suite_has_moved() { # SUITE
  local root plan wanted
  root=$(suite_root "$1")
  [ -d "$root" ] || return 0
  mapfile -t wanted < <(wanted_packages)
  plan=$(in_chroot "$root" bash -c 'apt-get -qq update && apt-get -s -qq --no-install-recommends install "$@"' \
    bash "${wanted[@]}") || {
    echo "the archive can't be asked whether $1 has moved; its root stays as it is"
    return 1
  }
  [ -n "$plan" ]
}

# Makes the root of a suite if there is none, or if the suite has moved since yesterday's look.
make_suite() { # SUITE
  local dir=$suites_dir/$1 lock
  mkdir -p "$dir"
  exec {lock}> "$dir/lock"
  flock "$lock"
  if [ -d "$dir/root" ] && [ -n "$(find "$dir/looked" -mmin -1440 2> /dev/null)" ] && [ "$dir/looked" -nt "$top/tests/lib/packages" ]; then
    already "Root directory of Debian's $1"
  elif ! STEP_MAY_FAIL=1 step "Asking whether Debian's $1 has moved" "newer-$1-look" suite_has_moved "$1"; then
    touch "$dir/looked"
  else
    command -v mmdebstrap > /dev/null || step "Installing mmdebstrap" tools apt_get install mmdebstrap
    step "Making a root directory of Debian's $1" "newer-$1-root" bootstrap_suite "$1"
    touch "$dir/looked"
  fi
  flock -u "$lock"
}

# Slurm's slurmdbd ends at its start with libmariadb3 11.8.9, which both trixie and forky have, since
# that takes no result with a column. With this machine's own it runs, if that is an older one.
lend_mariadb() { # SUITE
  local root own
  root=$(suite_root "$1")
  # A slurmdbd may be about to load it. A root is made anew when the suite's own changes.
  [ ! -e "$root/usr/local/lib/older-mariadb" ] || return 0
  own=$(ldconfig -p | awk '$1 == "libmariadb.so.3" { print $NF; exit }')
  [ -n "$own" ] && ! refuses_columns "$own" || return 0
  refuses_columns "$root"/usr/lib/*/libmariadb.so.3 || return 0
  install -D -m 644 "$own" "$root/usr/local/lib/older-mariadb/libmariadb.so.3"
}
refuses_columns() { grep -qsF "maxmimum allowed number of columns" "$@"; } # LIBRARY

# A second run would change the files and logs of the first. Holds until this process has ended.
claim_suite() { # SUITE SECONDS-TO-WAIT
  local claim
  exec {claim}> "$suites_dir/$1/run"
  flock -w "$2" "$claim" || fail "somebody else builds or tests on Debian's $1 in $(suite_root "$1"); wait for that"
}

# Brings the checkout there up to date and builds it.
build_in_suite() { # SUITE
  local root
  root=$(suite_root "$1")
  lend_mariadb "$1" && renew_checkout "$root" && in_chroot "$root" env BELLOWS_ANY_SYSTEM=1 ./runtests --setup
}

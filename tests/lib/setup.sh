# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# What quickstart and runtests do first: check the machine, install, fetch the data, build.
# The caller sets: top (source directory), and may set configure_flags (array).

build=${BELLOWS_BUILDDIR:-$top/build}
# shellcheck source=tests/lib/common.sh
. "$top/tests/lib/common.sh"
# shellcheck source=tests/lib/apt.sh
. "$top/tests/lib/apt.sh"

check_system() {
  local ID='' VERSION_ID='' PRETTY_NAME=''
  [ -z "${BELLOWS_ANY_SYSTEM-}" ] || return 0
  # shellcheck disable=SC1091
  [ ! -r /etc/os-release ] || . /etc/os-release
  case "$ID $VERSION_ID" in
    "debian 12" | "debian 13") ;;
    *) fail "this needs Debian 12 (bookworm) or 13 (trixie), and this system is ${PRETTY_NAME:-unknown}; \
set BELLOWS_ANY_SYSTEM=1 to try anyway" ;;
  esac
}

# An embedded cluster needs namespaces, device nodes and cgroups.
check_privilege() {
  local node
  [ "$(id -u)" -eq 0 ] || fail "this needs root, since the embedded cluster makes network \
namespaces, device nodes and cgroups; run: sudo $0"
  unshare --mount --net --uts --ipc --pid --fork true 2>/dev/null ||
    fail "this root may not make namespaces; in a container, run it with --privileged"
  node=$(mktemp -u)
  mknod "$node" c 195 0 2>/dev/null || fail "this root may not make device nodes; in a container, run \
it with --privileged"
  rm -f "$node"
  [ -w /sys/fs/cgroup ] || fail "/sys/fs/cgroup can't be written; in a container, run it with --privileged"
}

# check_space DIR MEGABYTES
check_space() {
  local dir=$1 free
  while [ ! -d "$dir" ]; do dir=$(dirname "$dir"); done
  free=$(df --output=avail -BM "$dir" | tail -n 1 | tr -dc 0-9)
  [ "$free" -ge "$2" ] || fail "$dir has $free MB free, and $2 MB are needed"
}

# The UCI handwritten digits, taken out of Debian's package: installing it would bring in SciPy.
fetch_digits() {
  local want=$build/data/digits.csv.gz dir=$build/data/unpack
  local inside=usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz
  rm -rf "$dir"
  mkdir -p "$dir"
  if [ -r "/$inside" ]; then
    cp "/$inside" "$dir/digits.csv.gz"
  else
    [ "$(id -u)" -eq 0 ] && apt_get update
    (cd "$dir" && apt-get -q download python3-sklearn) || return 1
    dpkg-deb --fsys-tarfile "$dir"/python3-sklearn_*.deb | tar -xO "./$inside" > "$dir/digits.csv.gz" ||
      return 1
  fi
  [ "$(gzip -dc "$dir/digits.csv.gz" | wc -l)" -eq 1797 ] || {
    echo "digits.csv.gz does not hold 1797 lines"
    return 1
  }
  mv "$dir/digits.csv.gz" "$want"
  rm -rf "$dir"
}

get_digits() {
  if [ -s "$build/data/digits.csv.gz" ]; then
    already "Handwritten digits from Debian's python3-sklearn"
    return
  fi
  step "Fetching the handwritten digits out of Debian's python3-sklearn" digits fetch_digits
}

# A stamp holds the digest of what a step was made from.
digest() {
  sha256sum | cut -c 1-64
}

autotools_inputs() {
  (cd "$top" && find . -path ./build -prune -o -name .git -prune -o \
    \( -name configure.ac -o -name Makefile.am -o -path './m4/*.m4' ! -name 'l*.m4' \) -type f -print0 |
    sort -z | xargs -0 sha256sum) | digest
}

autotools() {
  cd "$top" && flock configure.ac autoreconf -fi
}

# What was compiled with other flags would stay as it is: configure_build FLAGS-DIGEST
configure_build() {
  cd "$build" && "$(realpath --relative-to="$build" "$top")/configure" "${configure_flags[@]}" || return 1
  [ "$1" = "$(cat .compiled 2>/dev/null)" ] || make -s clean || return 1
  echo "$1" > .compiled
}

# Takes half the time of -O2 -g to build. Benchmarks have configure's own flags.
configure_flags=(CFLAGS="-O1 -g1" CXXFLAGS="-O1 -g1")
# Who has ccache is better off with that.
case $(readlink -f "$(command -v g++)") in
  */ccache) ;;
  *) configure_flags+=(--enable-precompiled-header) ;;
esac

build_bellows() {
  local inputs flags made
  mkdir -p "$build"
  [ -z "${BELLOWS_WERROR-}" ] || configure_flags+=(--enable-werror)
  inputs=$(autotools_inputs)
  flags=$(cat "$top"/configure.ac "$top"/m4/x_*.m4 - <<< "${configure_flags[*]} $(dpkg-query -W g++ libslurm-dev 2>&1)" | digest)
  made=$(printf '%s %s\n' "$inputs" "$flags" | digest)
  if [ ! -x "$top/configure" ] || [ "$(cat "$build/.autotools" 2>/dev/null)" != "$inputs" ]; then
    step "Generating configure" autoreconf autotools
    echo "$inputs" > "$build/.autotools"
  else
    already "Generating configure"
  fi
  if [ ! -x "$build/config.status" ] || [ "$(cat "$build/.configured" 2>/dev/null)" != "$made" ]; then
    step "Configuring" configure configure_build "$flags"
    echo "$made" > "$build/.configured"
  else
    already "Configuring"
  fi
  step "Building" make make -C "$build" -j2 "$@"
}

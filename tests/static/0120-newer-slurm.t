#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 420
# The same source compiles against the public headers of a newer Slurm: those of Debian's libslurm-dev
# in a later release, fetched by apt with lists of its own; nothing is installed.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${BELLOWS_BUILDDIR:-$top/build}
suites=(trixie)
# The newest release may break anything on any day.
[ -z "${BELLOWS_LONG-}" ] || suites+=(sid)
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"
# shellcheck source=tests/lib/apt.sh
. "$top/tests/lib/apt.sh"
cd "$top" || exit 1
scratch=$build/newer-slurm

# Puts the headers of a suite's libslurm-dev into $scratch/SUITE/usr/include: fetch SUITE
fetch() {
  local dir=$scratch/$1
  mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
  suite_source "$1" > "$dir/sources.list"
  cat > "$dir/apt.conf" <<CONF
Dir::State::Lists "$dir/lists";
Dir::Cache "$dir/cache";
Dir::Etc::SourceList "$dir/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Acquire::Languages "none";
Acquire::Retries "1";
APT::Sandbox::User "root";
CONF
  rm -rf "${dir:?}"/usr "$dir"/*.deb
  (cd "$dir" && export APT_CONFIG=$dir/apt.conf &&
    timeout 90 apt-get -q -o APT::Update::Error-Mode=any update &&
    timeout 60 apt-get -q download libslurm-dev && dpkg-deb -x libslurm-dev_*.deb .) > "$dir/log" 2>&1
}

# SLURM_VERSION_NUMBER of some headers: version_of INCLUDES
version_of() { sed -n 's/^#define SLURM_VERSION_NUMBER *//p' "$1/slurm/slurm_version.h"; }

read -r -a flags < <(pkg-config --cflags fmt hdf5-serial yaml-0.1 libxxhash lua5.4-c++ | tr '\n' ' ')
# compiles INCLUDES FILE ARGUMENTS...
compiles() {
  g++ -std=c++20 -x c++ -I"$1" -I. -I"$build" "${flags[@]}" '-DBELLOWS_BINDIR=""' '-DSLURM_PLUGIN_DIR=""' '-DBELLOWS_LIBDIR=""' "${@:3}" "$2"
}

# The sources that include Slurm's headers, however indirectly, as the build has noted. Those that include just
# the number of the release (slurm/releases.h) know nothing else of Slurm.
users_of_slurm() {
  local folder source
  for folder in slurm jobsubmit spank spank/container launcher; do
    find "$build/$folder" -path '*/.deps/*.P*o' -exec awk 'FNR == 1 {source = ""} source == "" && match($0, /[^ ]+\.cc( |$)/) {source = substr($0, RSTART, RLENGTH)}
        /\/include\/slurm\/(slurm|slurm_errno|slurmdb|spank)\.h/ {print source; nextfile}' {} + | sort -u | while read -r source; do
      # The tests compile some of them again, from folders of their own.
      [ ! -e "$build/$folder/$source" ] || realpath --relative-to="$top" "$build/$folder/$source"
    done
  done
}

# Says what is wrong with one source: try INCLUDES FILE
try() {
  local said
  echo "$2" >> "$1/tried"
  said=$(compiles "$1" "$2" -fsyntax-only 2>&1) || head -n 12 <<< "$said"
}

mapfile -t files < <(users_of_slurm)
own=$(version_of /usr/include)
for suite in "${suites[@]}"; do
  include=$scratch/$suite/usr/include
  if ! fetch "$suite"; then
    skip "Slurm of $suite" "libslurm-dev can't be fetched: $(grep -m 1 '^[EW]:' "$scratch/$suite/log" | cut -c 1-200)"
    continue
  fi
  version=$(version_of "$include")
  if [ "$((version))" -le "$((own))" ]; then
    skip "Slurm of $suite" "this machine's is as new, and the build has shown it"
    continue
  fi
  { [ "$((version))" -ge "$((0x170200))" ] || echo "its number is \"$version\""; } |
    point "Slurm of $suite is 23.02 or later"
  # It must be these headers that count: this is right with 22.05 only.
  echo 'void f(hostlist_t list) { slurm_hostlist_destroy(list); }' > "$scratch/old.cc"
  {
    [ "$((own))" -ge "$((0x170200))" ] ||
      compiles /usr/include "$scratch/old.cc" -include slurm/slurm.h -fsyntax-only 2>&1
    compiles "$include" "$scratch/old.cc" -include slurm/slurm.h -fsyntax-only 2> /dev/null &&
      echo "what is right only with 22.05 compiled"
  } | point "it tells old use from new"
  for ((i = 0; i < ${#files[@]}; i += 2)); do
    try "$include" "${files[i]}" &
    [ -z "${files[i + 1]-}" ] || try "$include" "${files[i + 1]}"
    wait
  done | point "the sources compile with Slurm $(printf '%d.%02d' $((version >> 16)) $((version >> 8 & 255)))"
  { [ "$(wc -l < "$include/tried")" -ge 20 ] || echo "only these: $(cat "$include/tried")"; } 2>&1 |
    point "all that include Slurm's headers were tried"
done
finish

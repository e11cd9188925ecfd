#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every C++ file that is shipped passes the checks of .clang-tidy. A file that passed is checked again
# only when it, a header or the list of checks has changed.
# deadline: 900
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}
build=${BELLOWS_BUILDDIR:-$top/build}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"
cd "$top" || exit 1

passed=$build/tidy
mkdir -p "$passed"
read -r -a flags < <(pkg-config --cflags hdf5-serial yaml-0.1 fmt libxxhash criterion lua5.4-c++ | tr '\n' ' ')
if command -v mpicc > /dev/null; then
  read -r -a mpi < <(mpicc --showme:compile)
  flags+=("${mpi[@]}")
fi
pmix=
if pkg-config --exists pmix; then
  pmix=yes
  read -r -a found < <(pkg-config --cflags pmix)
  flags+=("${found[@]}")
fi
cuda=$(dirname "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")
mapfile -t headers < <(sources -name '*.h')
common=$(cat .clang-tidy "${headers[@]}" | sha256sum)

# Prints what is wrong with one file into FILE.out under build/tidy.
tidy() {
  local file=$1 key
  key=$passed/$(echo "$common $(sha256sum "$file")" | sha256sum | cut -c 1-32)
  [ ! -e "$key" ] || return 0
  if clang-tidy --quiet "$file" -- -x c++ -std=c++20 -DHAVE_CONFIG_H -I. -I"$build" -I"$(dirname "$file")" \
    -Icommon -Icheckpoint/include -isystem "$cuda/include" '-DBELLOWS_BINDIR=""' '-DBELLOWS_LIBDIR=""' '-DPKGLIBEXECDIR=""' "${flags[@]}" \
    > "$passed/out.$2" 2>&1; then
    : > "$key"
    rm -f "$passed/out.$2"
  fi
}

# Two at a time.
# What needs the headers of CUDA and PMIx is looked at where they are.
wanted() {
  sources -name '*.cc' | grep -E '^(common|checkpoint|modelstore|paramserver|jobsubmit|spank|launcher|examples)/' |
    if [ -n "$pmix" ] && [ -e "$cuda/include/nccl.h" ]; then cat; else grep -v nccl; fi
}
mapfile -t files < <(wanted)
rm -f "$passed"/out.*
for i in "${!files[@]}"; do
  tidy "${files[$i]}" "$i" &
  [ "$((i % 2))" -eq 0 ] || wait
done
wait
for i in "${!files[@]}"; do
  { cat "$passed/out.$i" 2>/dev/null || true; } | point "clang-tidy ${files[$i]}"
done
finish

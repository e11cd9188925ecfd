#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 180
# Checkpoints that the libraries of one Debian release wrote (HDF5 1.10, 1.14 or 2.2, their Python and C
# library) are restored with those of each other one, bit for bit, also by another number of ranks.
# shellcheck source=tests/cluster/tap.sh
. "$(dirname "$0")/../tap.sh"

top=$(cd "$TAP_HOME/../.." && pwd)
build=${BELLOWS_BUILDDIR:-$top/build}
releases=(here)
# In runtests the time is for one that is up to date.
for suite in trixie forky; do
  root=${BELLOWS_NEWER_DIR:-$top/build/newer}/$suite/root/root/bellows/build
  [[ -e $root/checkpoint/.libs/libbellows.so.0 ]] || continue
  if timeout "$(seconds 40)" "$top/tests/newer" "$suite" --build >/dev/null 2>&1; then
    releases+=("$suite")
  else
    diag "the root directory of $suite is not up to date, or is in use"
  fi
done
((${#releases[@]} > 1)) ||
  skip_all "there is no other release here: tests/newer trixie --build makes one in some minutes"
work=$(mktemp -d "${TMPDIR:-/tmp}/bellows-releases-XXXXXX")
trap 'rm -rf "$work"; tap_end' EXIT

# A command with the programs and libraries of a release.
on() { # RELEASE COMMAND...
  local release=$1 source=/root/bellows built=/root/bellows/build enter=("$top/tests/newer" "$1" --enter "$work" --)
  shift
  [[ $release != here ]] || { source=$top built=$build enter=(); }
  timeout "$(seconds 60)" "${enter[@]}" env PYTHONPATH="$source/python" BELLOWS_AGENT="$built/launcher/bellows" \
    BELLOWS_LIBRARY="$built/checkpoint/.libs/libbellows.so.0" PATH="$built/launcher:$PATH" "$@"
}
# All ranks of carry.py: carry RELEASE save|restore DIR WORLD
carry() {
  local rank pids=() source=/root/bellows failed=0
  [[ $1 != here ]] || source=$top
  for ((rank = 0; rank < $4; rank++)); do
    on "$1" python3 -B "$source/tests/cluster/programs/carry.py" "$2" "$3" "$rank" "$4" >"$3.$rank" 2>&1 &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do
    wait "${pids[rank]}" || { failed=1 && cat "$3.$rank"; }
  done
  return "$failed"
}
# shellcheck disable=SC2016
hdf5_of() { on "$1" sh -c 'ldd "$BELLOWS_AGENT" | grep -o "libhdf5_serial[^ ]*" | head -n 1'; }

for writer in "${releases[@]}"; do
  ok "$writer ($(hdf5_of "$writer")): two ranks save" carry "$writer" save "$work/$writer" 2
  for reader in "${releases[@]}"; do
    [[ $reader != "$writer" ]] || continue
    rm -rf "$work/copy" && cp -a "$work/$writer" "$work/copy"
    ok "on $reader: every block is right" on "$reader" bellows ckpt verify --quiet --dir "$work/copy"
    ok "on $reader: three ranks restore every bit" carry "$reader" restore "$work/copy" 3
    ok "on $writer: what they have saved again is the same" on "$writer" bellows ckpt diff --quiet --dir "$work/copy" 1 2
  done
done
done_testing

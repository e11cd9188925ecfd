#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deadline: 300
# The targets that libfuzzer.mk names, under libFuzzer: so many runs each, or so many seconds, from the
# committed corpus.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${BELLOWS_BUILDDIR:-$top/build}
runs=5000
seconds=3
# To compile takes longer than such a short run.
optimize=-O0
[ -z "${BELLOWS_LONG-}" ] || runs=5000000 seconds=3600 optimize=-O1
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"

if ! clang++ -fsanitize=fuzzer -x c++ -o /dev/null - 2> /dev/null \
  <<< 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, decltype(sizeof 0)) { return 0; }'; then
  echo "1..0 # SKIP there is no clang++ with libFuzzer"
  exit 0
fi
mkdir -p "$build/libfuzzer$optimize"
cd "$build/libfuzzer$optimize" || exit 1

# A fault among the last lines of what a target says comes with the input that shows it.
fuzz() {
  rm -rf "new/$1"
  mkdir -p "new/$1"
  timeout -k 5 $((seconds + 60)) "./$1" -runs="$runs" -max_total_time="$seconds" -seed=1 -max_len=4096 -timeout=10 \
    -artifact_prefix="$PWD/$1-" "new/$1" "$top/tests/fuzz/corpus/$1" > "$1.log" 2>&1 && return
  echo "exit status $?; the end of $PWD/$1.log:"
  tail -n 50 "$1.log"
}

make_targets() { nice make -s -k -j2 -f "$top/tests/fuzz/libfuzzer.mk" TOP="$top" OPTIMIZE=$optimize LONG="${BELLOWS_LONG-}" "$@"; }
{ make_targets || echo "make failed"; } 2>&1 |
  point "the targets compile"
for target in $(make_targets list); do
  fuzz "$target" | point "$target: $runs runs or $seconds s"
done
finish

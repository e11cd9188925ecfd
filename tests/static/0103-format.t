#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every C and C++ file is formatted as .clang-format says and names its licence.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"
cd "$top" || exit 1

# Debian 12's: another version has other ideas of the same style.
version=14

check_format() {
  local files file said status
  mapfile -t files < <(sources -name '*.cc' -o -name '*.h' -o -name '*.c')
  # One process for all: to start clang-format takes longer than it has to do with a file.
  said=$(clang-format --dry-run -Werror "${files[@]}" 2>&1)
  status=$?
  for file in "${files[@]}"; do
    if [[ $said == *"$file:"* ]]; then
      awk -v file="$file:" 'index($0, file) == 1 {lines = 3} lines-- > 0' <<< "$said" | head -n 8
    fi | point "clang-format $file"
  done
  { [ "$status" -eq 0 ] || grep -q ': error: ' <<< "$said" || echo "$said"; } | point "clang-format read every file"
}

if clang-format --version | grep -q "version $version\."; then
  check_format
else
  skip "clang-format" "the sources have the format of version $version, and this is $(clang-format --version)"
fi
mapfile -t files < <(sources -name '*.cc' -o -name '*.h' -o -name '*.c' -o -name '*.sh' -o -name '*.py' -o -name '*.t')
grep -L 'SPDX-License-Identifier: Apache-2.0' "${files[@]}" | point "every source file names its licence"
finish

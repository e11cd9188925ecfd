#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every C and C++ file is formatted as .clang-format says and names its licence.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"
cd "$top" || exit 1

mapfile -t files < <(sources -name '*.cc' -o -name '*.h' -o -name '*.c')
for file in "${files[@]}"; do
  clang-format --dry-run -Werror "$file" 2>&1 | head -n 8 | point "clang-format $file"
done
mapfile -t files < <(sources -name '*.cc' -o -name '*.h' -o -name '*.c' -o -name '*.sh' -o -name '*.py' -o -name '*.t')
grep -L 'SPDX-License-Identifier: Apache-2.0' "${files[@]}" | point "every source file names its licence"
finish

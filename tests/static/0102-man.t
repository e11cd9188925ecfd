#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every man page passes mandoc's lint, and every command has one.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"
cd "$top" || exit 1

while read -r file; do
  mandoc -Tlint -W warning "$file" 2>&1 | point "mandoc -Tlint $file"
done < <(sources -path './man/*.[1-9]')
finish

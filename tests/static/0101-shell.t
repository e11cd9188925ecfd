#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every shell script, generated ones left out, passes shellcheck.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"
cd "$top" || exit 1

shebang='^#!.*[/ ](ba|da)?sh( |$)'
while read -r file; do
  case $file in
    *.sh) ;;
    *)
      IFS= read -r -n 60 first < "$file"
      [[ $first =~ $shebang ]] || continue
      ;;
  esac
  shellcheck -x "$file" 2>&1 | point "shellcheck $file"
done < <(sources ! -name 'configure*' ! -name 'libtool' ! -path './m4/*')
finish

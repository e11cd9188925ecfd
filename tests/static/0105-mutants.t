#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every mutant still fits the sources: one that does not would be no proof of its test any more.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"

"$top/tests/mutants/run" --check 2>&1 | point "every text that a mutant replaces occurs once in its file"
finish

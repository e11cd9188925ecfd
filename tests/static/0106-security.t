#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What SECURITY.md quotes as proof exists: tests of units, cluster tests and their points, files.
top=${BELLOWS_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=tests/lib/static.sh
. "$top/tests/lib/static.sh"
cd "$top" || exit 1

# Prints one proof on each line: "unit SUITE/NAME", "program NAME", "file PATH", "cluster NUMBER"
# or "point NUMBER TEXT". A name or text without a suite or number has that of the one before it.
proofs() {
  /usr/bin/python3 - SECURITY.md <<'PYTHON'
import re, sys

def proofs(text):
    suite = number = None
    for tick, quote, digits in re.findall(r'`([^`]+)`|"([^"]+)"|\b(\d{4}(?:-[a-z]+)?)\b', text):
        if digits:
            number = digits
            yield f"cluster {digits}"
        elif quote and number:
            yield f"point {number} {quote}"
        elif re.fullmatch(r"(tests|spank|common)/[\w./-]+", tick):
            yield f"file {tick}"
        elif tick.startswith("test_"):
            yield f"program {tick}"
        elif tick.startswith("fuzz_"):
            yield f"file tests/fuzz/{tick}.cc"
        elif match := re.fullmatch(r"([a-z_*]+)/([a-z_*]+)", tick):
            suite = match[1]
            yield f"unit {tick}"
        elif suite and re.fullmatch(r"[a-z_]+\*?", tick):
            yield f"unit {suite}/{tick}"

holds = False
for part in re.split(r"\n\n|\n(?=\| )|\n(?=- )", open(sys.argv[1], encoding="utf-8").read()):
    part = " ".join(part.split())
    # In the table the proofs are in the last column; elsewhere all of a part is looked at.
    rows = part.strip("|").split(" | ")
    print(*proofs(rows[-1]), sep="\n")
PYTHON
}

# "suite/name" of every unit test.
unit_tests() {
  grep -hozE '(Parameterized)?Test\([a-z_0-9]+,\s*[a-z_0-9]+' tests/unit/*/*.cc | tr '\n\0' ' \n' |
    sed -E 's/^.*Test\(//; s/, */\//'
}

# What a cluster test says may be put together from variables.
says() { # NUMBER TEXT
  local text
  text=$(sed -E 's/ ?\.\.\. ?/.*/g; s/[][()?+{}^$|]/\\&/g' <<<"$2")
  cat tests/cluster/*/"$1"* tests/cluster/*.sh tests/cluster/programs/*.py | tr -s ' \n' ' ' | grep -qE "$text"
}

missing() {
  local kind what text name tests
  tests=$(unit_tests)
  while read -r kind what text; do
    case $kind in
      unit)
        while read -r name; do
          # shellcheck disable=SC2053
          [[ $name != $what ]] || continue 2
        done <<<"$tests"
        printf 'no unit test is called %s\n' "$what"
        ;;
      program) grep -q "^${what}_SOURCES" tests/unit/Makefile.am || printf 'no unit test program is %s\n' "$what" ;;
      file) [ -e "$what" ] || printf 'there is no %s\n' "$what" ;;
      cluster) compgen -G "tests/cluster/*/$what*.t" >/dev/null || printf 'there is no cluster test %s\n' "$what" ;;
      point) says "$what" "$text" || printf 'no point of %s says "%s"\n' "$what" "$text" ;;
    esac
  done
}

found=$(proofs | sed '/^$/d')
[ "$(wc -l <<<"$found")" -gt 100 ] || printf 'only %d were found\n' "$(wc -l <<<"$found")" | point "the proofs are found"
missing <<<"$found" | point "every test, point and file that SECURITY.md names exists"
finish

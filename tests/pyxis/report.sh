# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# What a run says. The caller sets: here, cache, checkout.

# The names of a file's tests, as bats prints them.
test_names() { # FILE
  sed -n 's/^@test "\(.*\)" {$/\1/p' "$checkout/tests/$1.bats" | sed 's/\\\(.\)/\1/g'
}

# "FILE|TEST|ok", "FILE|TEST|skipped" or "FILE|TEST|failed" for each; one that was not reached has failed.
file_table() { # FILE
  test_names "$1" | awk -v file="$1" '
    FILENAME != "-" {
      if ($0 !~ /^(not )?ok [0-9]+ /) next
      state = /^not/ ? "failed" : / # skip/ ? "skipped" : "ok"
      sub(/^(not )?ok [0-9]+ /, ""); sub(/ in [0-9]+ms( # .*)?$/, ""); sub(/ # (skip|timeout).*$/, "")
      states[$0] = state
      next
    }
    { print file "|" $0 "|" (($0 in states) ? states[$0] : "failed") }' "$cache/results/${1//\//-}.tap" -
}

known_list() { sed -e 's/#.*//' -e '/^ *$/d' -e 's/ *| */|/g' "$here/known"; }

# The counts, and how the failures compare with those that are known: fails if there are others.
report() {
  known_list | awk -F'|' -v known_file="tests/pyxis/known" '
    FILENAME == "-" { known[$1 "|" $2] = $3; next }
    { total++; count[$3]++; here = $1 "|" $2 }
    $3 == "failed" && here in known { print "known to fail: " $1 ": " $2 " (" known[here] ")"; next }
    $3 == "failed" { print "FAILS: " $1 ": " $2; bad++ }
    $3 == "ok" && here in known { print "passes, take it out of " known_file ": " $1 ": " $2 }
    END {
      printf "%d of %d pass, %d skipped, %d failed (%d of them not known)\n", count["ok"], total, count["skipped"], count["failed"], bad
      exit bad > 0
    }' - "$cache/results/table"
}

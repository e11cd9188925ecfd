# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# For the checks of the sources in tests/static: file lists and TAP points.
# The caller sets: top (source directory).

points=0
shopt -s lastpipe  # point must count in this shell, not in one of a pipeline

# Source files of this tree, relative to it: sources FIND-EXPRESSION...
sources() {
  (cd "$top" && find . -type d \( -name .git -o -name 'build*' -o -name autom4te.cache \) -prune -o \
    -type f \( "$@" \) -print) | sed 's,^\./,,' | sort
}

# Prints a point; the lines on standard input say what is wrong: point NAME < complaints
point() {
  local said=''
  # Without a process: there are thousands of points, and most have nothing to say.
  ! IFS= read -r -d '' said || said="it has a zero byte: $said"
  while [[ $said == *$'\n' ]]; do said=${said%$'\n'}; done
  points=$((points + 1))
  if [ -z "$said" ]; then
    printf 'ok %d - %s\n' "$points" "$1"
  else
    printf 'not ok %d - %s\n' "$points" "$1"
    head -n 60 <<< "$said" | sed 's/^/# /'
  fi
}

# skip WHAT REASON
skip() {
  points=$((points + 1))
  printf 'ok %d - %s # SKIP %s\n' "$points" "$1" "$2"
}

finish() {
  printf '1..%d\n' "$points"
}

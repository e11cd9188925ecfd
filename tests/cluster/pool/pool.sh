# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For tests of elastic pools, after tap.sh.

# The processes of this cluster whose command line matches: those of other tests may have the same: pool_pids REGEX
pool_pids() {
  local pid
  for pid in $(pgrep -f -- "$1"); do
    # shellcheck disable=SC2153
    ! grep -qsaF -- "$CLUSTER" "/proc/$pid/environ" "/proc/$pid/cmdline" || echo "$pid"
  done
}

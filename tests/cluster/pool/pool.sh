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

# Kills slurmctld once it has saved all jobs there are: it gives the ids of those that it forgets to others, and slurmd then
# drains the node for a job that it has twice.
kill_ctld() {
  local mark
  mark=$(mktemp)
  # It saves within some seconds of a change, and not at all without one.
  poll 10 test "$CLUSTER/spool/ctld/job_state" -nt "$mark"
  rm -f "$mark"
  mc stop-ctld --signal KILL
}

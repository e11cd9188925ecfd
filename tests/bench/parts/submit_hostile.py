# SPDX-License-Identifier: Apache-2.0
"""The plugin's slowest call over requests that are made to hold slurmctld up."""
import json
import shutil
import subprocess
import tempfile

import rows
import submit_policy

ROUNDS = 20


def run(options):
    scratch = tempfile.mkdtemp(prefix="bellows-bench-")
    try:
        done = subprocess.run(
            [f"{options.builddir}/tests/bench/hostile_calls",
             f"{options.builddir}/jobsubmit/.libs/job_submit_bellows.so",
             submit_policy.write(scratch, "plain"), "account49", str(options.count(ROUNDS))],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    slowest = max(rounds, key=lambda r: r["ms"])
    return [rows.row("submit.hostile_ms", [r["ms"] for r in rounds], "ms", "lower", 1, figure=max,
                     note=f"of the processor; the slowest was a {slowest['name']}")]

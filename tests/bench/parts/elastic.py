# SPDX-License-Identifier: Apache-2.0
"""How long the elastic optimizer takes for a whole cluster, and after each change. One thread."""
import json
import statistics
import subprocess

import rows

REPEATS = 16


def p95(samples):
    return rows.percentile(sorted(samples), 0.95)


def run(options):
    done = subprocess.run([f"{options.builddir}/tests/bench/optimize_bench",
                           str(options.count(REPEATS))],
                          capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"optimize_bench ended with {done.returncode}")
    took = json.loads(done.stdout)
    return [
        rows.row("elastic.optimize_ms", took["optimize"], "ms", "lower", goal=50,
                 baseline=("without AVX2, ms", statistics.median(took["scalar"])),
                 note="1,000 jobs of 10 tenants on 10,000 GPUs, sizes 1 to 64"),
        rows.row("elastic.optimize_10000_ms", took["ten_thousand"], "ms", "lower",
                 note="10,000 jobs on the same"),
        rows.row("elastic.replan_ms", took["replan"], "ms", "lower", goal=5, figure=p95,
                 note="95th percentile, after one job came, ended or changed its curve"),
    ]

# SPDX-License-Identifier: Apache-2.0
"""How long the elastic optimizer takes for a whole cluster, and after each change. One thread.

With the measured programs of the Pollux paper, also what schedulers make of its workloads:
BELLOWS_TRACES names a folder with the folders models and workloads of bellows-simulate(1).
"""
import json
import os
import pathlib
import statistics
import subprocess

import rows

REPEATS = 16
TOP = pathlib.Path(__file__).resolve().parents[3]


def p95(samples):
    return rows.percentile(sorted(samples), 0.95)


def simulate(options, traces, *arguments):
    done = subprocess.run([f"{options.builddir}/launcher/bellows", "simulate", "--json",
                           "--models", f"{traces}/models",
                           "--terms", str(TOP / "etc/osdi21-terms.csv"), *arguments],
                          capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def simulated(options):
    traces = os.environ.get("BELLOWS_TRACES")
    if not traces:
        return []
    workloads = sorted(map(str, pathlib.Path(traces, "workloads").glob("*.csv")))
    took = [simulate(options, traces, "--scheduler", "elastic", workloads[0])[0]["wall_s"]
            for _ in range(options.count(REPEATS))]
    table = [rows.row("elastic.simulate_s", took, "s", "lower", goal=2, note="160 jobs, 64 GPUs")]
    names = ("elastic", "pollux", "sia", "tiresias", "optimus", "fixed-batch", "oracle")
    chosen = [word for name in names for word in ("--scheduler", name)]
    for restart in (2.3, 30, 124, 250):
        reports = simulate(options, traces, *chosen, "--restart", str(restart), *workloads)
        means = {name: statistics.mean(report["mean_completion_s"] for report in reports
                                       if report["scheduler"] == name) for name in names}
        for name in names:
            table.append(rows.row(f"elastic.completion_s.{name}.restart_{restart}", [means[name]],
                                  "s", "lower", baseline=("pollux, s", means["pollux"]),
                                  goal=0.82 * means["pollux"]
                                  if (name, restart) == ("elastic", 30) else None,
                                  note=f"mean over {len(workloads)} workloads"))
    return table


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
    ] + simulated(options)

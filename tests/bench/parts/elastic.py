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


def overload(options, traces, workloads):
    """Jobs done in 8 hours, and completion of all jobs, against the baseline of 2006.13878."""
    names = ("elastic", "fixed-batch-initial", "fixed-batch-largest", "fixed-batch-random")
    chosen = [word for name in names for word in ("--scheduler", name)]
    table = []
    for load in (0.5, 1, 1.5, 2, 4):
        for figure, better, limit in (("jobs_done", "higher", ["--until", "28800"]),
                                      ("mean_completion_s", "lower", [])):
            reports = simulate(options, traces, *chosen, "--load", str(load), *limit, *workloads)
            means = {name: statistics.mean(report[figure] for report in reports
                                           if report["scheduler"] == name) for name in names}
            for name in names[1:]:
                factor = 2 if better == "higher" else 0.1
                table.append(rows.row(
                    f"elastic.{figure}.load_{load}.against_{name}", [means["elastic"]],
                    "jobs" if better == "higher" else "s", better,
                    goal=factor * means[name] if load > 1 else None,
                    baseline=(name, means[name]), note=f"mean over {len(workloads)} workloads"))
    return table


def simulated(options):
    traces = os.environ.get("BELLOWS_TRACES")
    if not traces:
        return []
    workloads = sorted(map(str, pathlib.Path(traces, "workloads").glob("*.csv")))
    took = [simulate(options, traces, "--scheduler", "elastic", workloads[0])[0]["wall_s"]
            for _ in range(options.count(REPEATS))]
    table = [rows.row("elastic.simulate_s", took, "s", "lower", goal=2, note="160 jobs, 64 GPUs")]
    names = ("elastic", "pollux", "sia", "tiresias", "optimus", "fixed-batch", "informed")
    chosen = [word for name in names for word in ("--scheduler", name)]
    table += overload(options, traces, workloads)
    mean_of = {}
    for restart in (2.3, 30, 124, 250):
        reports = simulate(options, traces, *chosen, "--restart", str(restart), *workloads)
        means = {name: statistics.mean(report["mean_completion_s"] for report in reports
                                       if report["scheduler"] == name) for name in names}
        mean_of[restart] = means
        for name in names:
            table.append(rows.row(f"elastic.completion_s.{name}.restart_{restart}", [means[name]],
                                  "s", "lower", baseline=("pollux, s", means["pollux"]),
                                  goal=0.82 * means["pollux"]
                                  if (name, restart) == ("elastic", 30) else None,
                                  note=f"mean over {len(workloads)} workloads"))
    table.append(rows.row("elastic.completion_s.elastic.own_restarts", [mean_of[2.3]["elastic"]],
                          "s", "lower", baseline=("pollux, s", mean_of[30]["pollux"]),
                          goal=2 / 3 * mean_of[30]["pollux"],
                          note="restarts of 2.3 s against Pollux with its 30 s"))
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
        rows.row("elastic.places_ms", took["places"], "ms", "lower",
                 note="the 1,000 jobs with their places on 2,500 nodes, few of them free"),
    ] + simulated(options)

# SPDX-License-Identifier: Apache-2.0
"""How near a pool's size is to what its load needs, in simulated time.

Agility is the mean over time of ready members above or below those needed. The policy plays the same loads, with
the same start times, as the rules of KEDA, Knative, Ray Serve and thresholds of CPU at their documented defaults, and
as a bound that knows the load and reacts at once. The start times are those that record_starts.py recorded.
"""
import os
import statistics
import subprocess

import rows

STARTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "pool_starts.txt")

REPEATS = 16
PEAKS = {"": 400, "_thousand": 3900}
FIGURES = ("agility", "failed", "calls", "p99_s", "member_hours", "starts")
NOT_RIVALS = ("bellows", "bound")


def play(options, seed, peak):
    """Figures by load and autoscaler."""
    done = subprocess.run([f"{options.builddir}/tests/bench/pool_bench", str(seed), str(peak), STARTS],
                          capture_output=True, text=True, check=True, timeout=600)
    words = [line.split() for line in done.stdout.splitlines()]
    return {(w[0], w[1]): dict(zip(FIGURES, map(float, w[2:]))) for w in words}


def of_load(load, size, plays):
    def samples(scaler, figure):
        return [one[load, scaler][figure] for one in plays]

    scalers = [scaler for name, scaler in plays[0] if name == load]
    table = [rows.row(f"pool.agility_{load}{size}_{scaler}", samples(scaler, "agility"), "members",
                      "lower", note=f"{statistics.median(samples(scaler, 'failed')):.0f} calls failed, "
                      f"p99 {statistics.median(samples(scaler, 'p99_s')):.1f} s, "
                      f"{statistics.median(samples(scaler, 'member_hours')):.1f} member-hours, "
                      f"{statistics.median(samples(scaler, 'starts')):.0f} starts")
             for scaler in scalers]
    best = [min(one[load, scaler]["agility"] for scaler in scalers if scaler not in NOT_RIVALS)
            for one in plays]
    ours = samples("bellows", "agility")
    table.append(rows.row(f"pool.agility_{load}{size}_against_best_rival",
                          [a / b for a, b in zip(ours, best)], "ratio", "lower", goal=1))
    table.append(rows.row(f"pool.agility_{load}{size}_against_bound",
                          [a / b for a, b in zip(ours, samples("bound", "agility"))], "ratio",
                          "lower", goal=1.3))
    table.append(rows.row(f"pool.failed_{load}{size}", samples("bellows", "failed"), "calls",
                          "lower", goal=0))
    return table


def run(options):
    for size, peak in PEAKS.items():
        plays = [play(options, seed, peak) for seed in range(options.count(REPEATS))]
        for load in dict.fromkeys(name for name, _ in plays[0]):
            yield from of_load(load, size, plays)

# SPDX-License-Identifier: Apache-2.0
"""What a step of training takes under `bellows run`, asking at each one whether to stop, against the
same program under plain srun, which asks nobody.

It is the mean step that counts, since what an agent does beside the ranks falls into few of them.
Runs are short, so that both of a pair meet the same machine.
"""
import os
import re
import statistics

import cluster
import rows
from launch_place import Place

PAIRS = 48
STEPS = 200  # a second
GOAL = 1.01
STEP = re.compile(r"step (\d+\.\d+) us mean (\d+\.\d+) us")


def steps_us(sample):
    """The median and the mean step."""
    found = STEP.search(sample.text)
    if not found:
        raise RuntimeError(f"no rank said how long a step takes: {sample.text}")
    return float(found[1]), float(found[2])


def ratios(under, alone):
    return [a / b for a, b in zip(under, alone)]


def run(options):
    program = f"{options.builddir}/tests/bench/step_bench"
    if not os.path.exists(program):
        cluster.note("built without MPI: no launch.step_overhead")
        return []
    ranks = min(2, os.cpu_count())
    with Place(options) as place:
        pairs = place.pairs(ranks, f"{program} {STEPS}", options.count(PAIRS))
    under_medians, under = zip(*(steps_us(sample) for sample, _ in pairs))
    alone_medians, alone = zip(*(steps_us(sample) for _, sample in pairs))
    return [rows.row("launch.step_overhead", ratios(under, alone), "x", "lower", GOAL),
            rows.row("launch.step_overhead_of_median", ratios(under_medians, alone_medians), "x",
                     "lower"),
            rows.row("launch.step_us", under, "us", "lower",
                     baseline=("plain srun", statistics.median(alone)))]

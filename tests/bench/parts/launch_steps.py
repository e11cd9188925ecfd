# SPDX-License-Identifier: Apache-2.0
"""What a step of training takes under `bellows run`, asking at each one whether to stop, against the
same program under plain srun, which asks nobody.
"""
import os
import re
import statistics

import cluster
import rows
from launch_place import Place

PAIRS = 24
STEPS = 300
GOAL = 1.01
STEP = re.compile(r"step (\d+\.\d+) us")


def step_us(sample):
    found = STEP.search(sample.text)
    if not found:
        raise RuntimeError(f"no rank said how long a step takes: {sample.text}")
    return float(found[1])


def run(options):
    program = f"{options.builddir}/tests/bench/step_bench"
    if not os.path.exists(program):
        cluster.note("built without MPI: no launch.step_overhead")
        return []
    ranks = min(2, os.cpu_count())
    with Place(options) as place:
        pairs = place.pairs(ranks, f"{program} {STEPS}", options.count(PAIRS))
    under = [step_us(sample) for sample, _ in pairs]
    alone = [step_us(sample) for _, sample in pairs]
    return [rows.row("launch.step_overhead", [a / b for a, b in zip(under, alone)], "x", "lower",
                     GOAL),
            rows.row("launch.step_us", under, "us", "lower",
                     baseline=("plain srun", statistics.median(alone)))]

# SPDX-License-Identifier: Apache-2.0
"""From the ranks' srun to the last rank's main(), with agents up, against the same srun alone.

Printed beside it: the whole time from `bellows run` to the last main(). It is that of two steps after
each other, the agents' and the ranks', where plain srun has one.
"""
import re
import statistics

import rows
from launch_place import Place

RANKS = (1, 8, 64)
PAIRS = 24
GOAL = 1.1
STARTED = re.compile(r"started \d+\.\d+ (\d+\.\d+) \d+")


def last_main(sample, ranks):
    starts = [float(moment) for moment in STARTED.findall(sample.text)]
    if len(starts) != ranks:
        raise RuntimeError(f"{len(starts)} of {ranks} ranks said when they started: {sample.text}")
    return max(starts)


def rows_of(ranks, pairs):
    under, alone, whole = [], [], []
    for run, plain in pairs:
        under.append(last_main(run, ranks) - run.begin)
        alone.append(last_main(plain, ranks) - plain.begin)
        whole.append(last_main(run, ranks) - run.whole)
    plain = ("plain srun", statistics.median(alone))
    return [rows.row(f"launch.ranks_{ranks}", [a / b for a, b in zip(under, alone)], "x", "lower",
                     GOAL),
            rows.row(f"launch.ranks_{ranks}_s", under, "s", "lower", baseline=plain),
            rows.row(f"launch.ranks_{ranks}_whole_s", whole, "s", "lower", baseline=plain)]


def run(options):
    result = []
    with Place(options) as place:
        for ranks in RANKS:
            pairs = place.pairs(ranks, f"{options.builddir}/tests/bench/started",
                                options.count(PAIRS))
            result += rows_of(ranks, pairs)
    return result

# SPDX-License-Identifier: Apache-2.0
"""Submission: in slurmctld, through libslurm, and as a user of sbatch sees it."""
import statistics

import cluster
import rows
import submit_calls
import submit_hostile
import submit_rate

PAIRS = 40


def latency(options):
    """What the plugins add to sbatch: two clusters, with and without them, in turn."""
    samples = {"plain": [], "bellows": []}
    with cluster.Cluster(options.builddir, "--nodes", "1", "--no-plugins") as plain, \
         cluster.Cluster(options.builddir, "--nodes", "1") as with_plugins, \
         plain.timer() as time_plain, with_plugins.timer() as time_bellows:
        job = ["--hold", "--output=/dev/null", "--wrap=true"]
        for i in range(options.count(PAIRS) + 2):
            first = time_plain("sbatch", "--gpus=1", *job)[0]
            second = time_bellows("sbatch", "--framework=plain", "--gpus-range=1", *job)[0]
            if i >= 2:  # the first ones load the programs
                samples["plain"].append(first * 1000)
                samples["bellows"].append(second * 1000)
    added = [b - a for a, b in zip(samples["plain"], samples["bellows"])]
    ratio = [b / a for a, b in zip(samples["plain"], samples["bellows"])]
    plain_median = statistics.median(samples["plain"])
    return [
        rows.row("submit.latency_ms", samples["bellows"], "ms", "lower",
                 baseline=("without plugins", plain_median)),
        rows.row("submit.added_ms", added, "ms", "lower"),
        rows.row("submit.with_vs_without", ratio, "x", "lower"),
    ]


def run(options):
    cluster.note("calls of the plugin alone")
    calls = submit_calls.run(options)
    cluster.note("hostile requests")
    hostile = submit_hostile.run(options)
    cluster.note("submissions per second")
    rates = submit_rate.run(options)
    cluster.note("sbatch")
    return calls + hostile + rates + latency(options)

# SPDX-License-Identifier: Apache-2.0
"""Checkpoints against a copy, a write and a read of the same bytes: what a save costs training, what
reaches the disk, what a restore takes; and beside other tools."""
import json
import os
import shutil
import statistics
import subprocess
import tempfile

import checkpoint_peers
import rows

PAIRS = 24
# As far as writes are not distorted by the page cache of a virtual machine.
MEGABYTES = 256
SKIPPED = 77  # exit status of a program that lacks what it measures


class Skipped(Exception):
    """Why there is nothing to measure."""


def run(options):
    # On the build's file system: /tmp may be memory, where fsync is free.
    scratch = tempfile.mkdtemp(prefix="bench-", dir=options.builddir)
    try:
        pairs = measured("save_bench", options, scratch) + measured("restore_bench", options, scratch)
        peers = checkpoint_peers.run(options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    writes = [p for p in pairs if p["kind"] == "write"]
    save = [p["bytes"] / p["save_s"] / 1e6 for p in writes]
    plain = [p["bytes"] / p["plain_s"] / 1e6 for p in writes]
    return [
        rows.row("checkpoint.save_mb_s", save, "MB/s", "higher",
                 baseline=("write and fsync", statistics.median(plain))),
        rows.row("checkpoint.save_vs_write", [s / w for s, w in zip(save, plain)], "x", "higher"),
        against(pairs, "stall", "checkpoint.stall_vs_memcpy", "lower", 1.15, "memcpy, s"),
        against(pairs, "write", "checkpoint.durable_vs_raw", "higher", 0.95, "direct write and fsync, s",
                note="from the return of an asynchronous save until its step is durable, without the stall"),
        against(pairs, "write", "checkpoint.save_vs_raw", "higher", None, "direct write and fsync, s", key="save_s",
                note="the stall and the time until the step is durable"),
        against(pairs, "memory", "checkpoint.restore_memory_vs_memcpy", "lower", 1.3, "memcpy, s"),
        against(pairs, "read", "checkpoint.restore_vs_raw", "higher", 0.9, "direct read, s"),
        *peers,
    ]


def measured(program, options, scratch):
    place = tempfile.mkdtemp(prefix=program, dir=scratch)
    done = subprocess.run(
        [f"{options.builddir}/tests/bench/{program}", place, str(MEGABYTES), str(options.count(PAIRS))],
        env={**os.environ, "BELLOWS_AGENT": f"{options.builddir}/launcher/bellows"},
        capture_output=True, text=True, timeout=1000, check=False)
    if done.returncode == SKIPPED:
        raise Skipped(done.stderr.strip())
    if done.returncode != 0:
        raise RuntimeError(f"{program}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def against(pairs, kind, name, better, goal, baseline, key="ours_s", note=None):
    """Our time as a multiple of the other's, or where higher is better our rate. What can be done in several
    ways is done in the one that is mostly the fastest here."""
    mine = [p for p in pairs if p["kind"] == kind]
    other = min(zip(*(p["against_s"] for p in mine)), key=statistics.median)
    ratios = [p[key] / o for p, o in zip(mine, other)]
    if better == "higher":
        ratios = [1 / r for r in ratios]
    return rows.row(name, ratios, "x", better, goal=goal, baseline=(baseline, statistics.median(other)), note=note)

# SPDX-License-Identifier: Apache-2.0
"""Checkpoint bandwidth against a plain write and fsync of the same bytes."""
import json
import os
import shutil
import statistics
import subprocess
import tempfile

import rows

PAIRS = 24
MEGABYTES = 128


def run(options):
    # On the build's file system: /tmp may be memory, where fsync is free.
    scratch = tempfile.mkdtemp(prefix="bench-", dir=options.builddir)
    try:
        done = subprocess.run(
            [f"{options.builddir}/tests/bench/save_bench", scratch, str(MEGABYTES), str(options.count(PAIRS))],
            env={**os.environ, "BELLOWS_AGENT": f"{options.builddir}/launcher/bellows"},
            capture_output=True, text=True, timeout=900, check=False)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if done.returncode != 0:
        raise RuntimeError(f"save_bench: {done.stderr}")
    pairs = [json.loads(line) for line in done.stdout.splitlines()]
    save = [p["bytes"] / p["save_s"] / 1e6 for p in pairs]
    write = [p["bytes"] / p["write_s"] / 1e6 for p in pairs]
    plain = ("write and fsync", statistics.median(write))
    return [
        rows.row("checkpoint.save_mb_s", save, "MB/s", "higher", baseline=plain),
        rows.row("checkpoint.save_vs_write", [s / w for s, w in zip(save, write)], "x", "higher"),
    ]

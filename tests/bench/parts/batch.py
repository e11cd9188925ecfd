# SPDX-License-Identifier: Apache-2.0
"""What a batch that changes costs: held-out digits that are read wrong, and the time to measure gradients' noise."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import rows

SEEDS = 5
PAIRS = 40
EPOCHS = 30
# Epochs with each batch and number of ranks, when both change; the learning rate is that of the first batch.
PLAN = ((10, 64, 1), (20, 128, 2), (EPOCHS, 256, 2))
TOP = pathlib.Path(__file__).resolve().parents[3]
PYTHON = "/usr/bin/python3"  # Debian's own: another python3 earlier in PATH lacks its packages


def environment(options, **more):
    return {**os.environ, "BELLOWS_AGENT": f"{options.builddir}/launcher/bellows",
            "BELLOWS_LIBRARY": f"{options.builddir}/checkpoint/.libs/libbellows.so.0",
            "PYTHONPATH": str(TOP / "python"), "PYTHONDONTWRITEBYTECODE": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **more}


def train(options, place, seed, epochs, batch, ranks):
    """Continues the training in `place` to the end of so many epochs; the percentage that it reads right."""
    command = ["mpirun", "--oversubscribe", "-n", str(ranks), f"{options.builddir}/examples/digits/digits",
               "--data", f"{options.builddir}/data/digits.csv.gz", "--checkpoint-dir", place,
               "--checkpoint-every", "0", "--seed", str(seed), "--epochs", str(epochs)]
    done = subprocess.run(command, env=environment(options, BELLOWS_BATCH=str(batch)), check=False,
                          capture_output=True, text=True, timeout=600)
    accuracy = re.search(r"accuracy: ([0-9.]+) %", done.stdout)
    if done.returncode != 0 or not accuracy:
        raise RuntimeError(f"digits ended with {done.returncode}: {done.stderr.strip()}")
    return float(accuracy[1])


def accuracies(options, seed):
    """With the first batch throughout, and with one that changes."""
    with tempfile.TemporaryDirectory(prefix="bellows-bench-") as place:
        fixed = train(options, place + "/fixed", seed, EPOCHS, *PLAN[0][1:])
        for epochs, batch, ranks in PLAN:
            changed = train(options, place + "/changed", seed, epochs, batch, ranks)
        return fixed, changed


def noise(options):
    """The time of steps with GradientNoise over that without it, on the clock and of the processor."""
    names = {"wall": "batch.noise_overhead", "cpu": "batch.noise_overhead_cpu"}
    why = subprocess.run([PYTHON, "-c", "import torch.distributed"], check=False, capture_output=True)
    if why.returncode != 0:
        return [rows.left_out(name, "there is no PyTorch") for name in names.values()]
    with tempfile.TemporaryDirectory(prefix="bellows-bench-") as place:
        ranks = [subprocess.Popen([PYTHON, str(TOP / "tests/bench/noise_steps.py"), place + "/store",
                                   str(rank), "2", str(options.count(PAIRS))],
                                  env=environment(options), stdout=subprocess.PIPE, text=True)
                 for rank in range(2)]
        said = [rank.communicate(timeout=1200)[0] for rank in ranks]
    if any(rank.returncode != 0 for rank in ranks):
        raise RuntimeError("noise_steps.py failed")
    result = json.loads(said[0])
    return [rows.row(name, result[kind], "ratio", "lower", goal=1.01,
                     baseline=("a step without it, s", result["plain"]),
                     note="DistributedDataParallel over gloo, 2 ranks of 128 samples, 0.8 million parameters")
            for kind, name in names.items()]


def run(options):
    table = noise(options)
    if not os.access(f"{options.builddir}/examples/digits/digits", os.X_OK):
        return table + [rows.left_out("batch.accuracy_change", "there is no MPI")]
    pairs = [accuracies(options, seed) for seed in range(1, options.count(SEEDS) + 1)]
    print("accuracies with a fixed and a changing batch: "
          + ", ".join(f"{fixed} and {changed} %" for fixed, changed in pairs), file=sys.stderr)
    return table + [rows.row("batch.accuracy_change", [changed - fixed for fixed, changed in pairs], "points",
                             "higher", goal=-0.5, figure=statistics.mean,
                             baseline=("batch 64 throughout, %", statistics.mean(f for f, _ in pairs)),
                             note="digits, 30 epochs: 64 on 1 rank, 128 on 2, 256 on 2")]

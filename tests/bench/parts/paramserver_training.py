# SPDX-License-Identifier: Apache-2.0
"""How fast examples/paramserver is trained with bellows.ps and with DistributedDataParallel over gloo, and how well
when learners do not wait for each other, against plain SGD."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

import paramserver_peers
import rows

BATCHES = (1, 4, 16)
LEARNERS = (1, 2)
RUNS, TURNS = 3, 8
FASTER = 1.5
SEEDS, SAMPLES, EPOCHS = 16, 6000, 2
PARALLEL = 2
HERE = pathlib.Path(__file__).resolve().parents[1]
NAMES = ("paramserver.training", "paramserver.accuracy_change", "paramserver.staleness")


def missing():
    """Why there are no figures here; "" if there can be."""
    found = subprocess.run([paramserver_peers.PYTHON, "-c", "import torch.distributed"], check=False,
                           capture_output=True, timeout=120)
    if found.returncode != 0:
        return "there is no PyTorch"
    if not shutil.which("apt-cache"):
        return "there is no apt-cache, which has the texts"
    names = subprocess.run(["apt-cache", "pkgnames"], check=False, capture_output=True, timeout=120)
    return "" if len(names.stdout.split()) >= 30000 else "apt has no lists of packages, which are the texts"


def environment(options, server):
    return {**server, "BELLOWS_PS_LIBRARY": f"{options.builddir}/paramserver/.libs/libbellows_ps.so.0",
            "BELLOWS_AGENT": f"{options.builddir}/launcher/bellows",
            "BELLOWS_LIBRARY": f"{options.builddir}/checkpoint/.libs/libbellows.so.0",
            "PYTHONPATH": str(HERE.parents[1] / "python"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


def said(options, program, arguments, world=1):
    """What the first of so many processes prints, beside a new server."""
    with paramserver_peers.server(options) as server:
        processes = [subprocess.Popen([paramserver_peers.PYTHON, str(HERE / program), *arguments(rank)],
                                      env=environment(options, server), stdout=subprocess.PIPE, text=True)
                     for rank in range(world)]
        try:
            outputs = [process.communicate(timeout=600)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
    if any(process.returncode != 0 for process in processes):
        raise RuntimeError(f"{program} failed")
    return json.loads(outputs[0])


def steps(options, batch, learners, seed):
    with tempfile.TemporaryDirectory(prefix="bench-text-") as directory:
        def arguments(rank):
            return [f"{directory}/store", *map(str, (rank, learners, batch, options.count(TURNS), seed))]
        return said(options, "text_steps.py", arguments, learners)


def training_rows(options, batch, learners):
    runs = [steps(options, batch, learners, seed) for seed in range(1, options.count(RUNS) + 1)]
    rates = {way: [rate for run in runs for rate in run[way]] for way in ("ps", "ddp", "alone")}
    accuracy = {way: [run["accuracy"][way] for run in runs] for way in ("ps", "ddp")}
    label = f"{batch}.{learners}"
    goal = FASTER if batch == 1 and learners > 1 else None
    return [
        rows.row(f"paramserver.training.{label}", rates["ps"], "1/s", "higher",
                 note=f"samples in a second, in batches of {batch}, by {learners} learners and one server thread: a "
                      "text, a convolution and 0.14 million weights"),
        rows.row(f"paramserver.training_vs_ddp.{label}", [a / b for a, b in zip(rates["ps"], rates["ddp"])], "x",
                 "higher", goal, ("DistributedDataParallel over gloo, 1/s", statistics.median(rates["ddp"]))),
        rows.row(f"paramserver.training_vs_alone.{label}", [a / b for a, b in zip(rates["ps"], rates["alone"])], "x",
                 "higher", None, ("as many processes, each by itself, 1/s", statistics.median(rates["alone"]))),
        rows.row(f"paramserver.training_accuracy.{label}",
                 [a - b for a, b in zip(accuracy["ps"], accuracy["ddp"])], "points", "higher", None,
                 ("DistributedDataParallel after as many samples, %", statistics.mean(accuracy["ddp"])),
                 figure=statistics.mean)]


def convergence_rows(options):
    results = [said(options, "text_convergence.py", lambda _, seed=seed: map(str, (seed, PARALLEL, SAMPLES, EPOCHS)))
               for seed in range(1, options.count(SEEDS) + 1)]
    stale = [count for result in results for count in result["stale"]]
    return [
        rows.row("paramserver.accuracy_change", [result["async"] - result["serial"] for result in results], "points",
                 "higher", -0.5, ("plain SGD, %", statistics.mean(result["serial"] for result in results)),
                 figure=statistics.mean,
                 note=f"batches of 1, {PARALLEL} learners that do not wait for each other, {SAMPLES * EPOCHS} updates; "
                      "it is the same if the interval is between -0.5 and 0.5"),
        rows.row("paramserver.staleness", [statistics.mean(result["stale"]) for result in results], "updates", "lower",
                 figure=statistics.mean,
                 note="at most so many updates of others that a gradient's weights lacked; "
                      f"99 of 100 at most {rows.percentile(sorted(stale), 0.99)}, one {max(stale)}")]


def run(options):
    why = missing()
    if why:
        yield from (rows.left_out(name, why) for name in NAMES)
        return
    for batch in BATCHES:
        for learners in LEARNERS:
            yield from training_rows(options, batch, learners)
    yield from convergence_rows(options)

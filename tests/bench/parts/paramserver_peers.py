# SPDX-License-Identifier: Apache-2.0
"""An update of all parameters by way of the parameter server (a gradient that is already in its slot pushed and
applied, the new weights pulled), beside what else does as much on one node: a naive shared memory, the allreduce of
DeepSpeed's scheme on CPUs, Open MPI's and gloo's. These need two processes at least; a server and a learner are two."""
import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

import cluster
import rows

KIB = (4, 64, 1024, 16384, 65536, 262144)
LEARNERS = (1, 2, 4)
ROUNDS = 20
SMALL_GOAL_US = 5.6  # what the naive one takes at most on an idle machine
PYTHON = "/usr/bin/python3"
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def updates(kib):
    """In one run: as many as take about a tenth of a second."""
    return max(2, min(2000, 100000 // kib))


@contextlib.contextmanager
def server(options):
    with tempfile.TemporaryDirectory(prefix="bench-ps-") as directory:
        path, said = f"{directory}/ps", pathlib.Path(f"{directory}/log")
        with open(said, "wb") as log:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                [f"{options.builddir}/paramserver/bellows-ps", f"--socket={path}"], stderr=log)
        try:
            # The socket is there a moment before anyone listens.
            cluster.wait(lambda: "is ready" in said.read_text(encoding="utf-8"), 10, "bellows-ps")
            yield {**os.environ, "BELLOWS_PS_SOCKET": path}
        finally:
            process.terminate()
            process.wait(timeout=20)


def median_us(text):
    return statistics.median(map(float, text.split()))


def run_one(command, environment=None):
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, env=environment)
    return median_us(done.stdout)


def ours(options, kib, learners):
    command = [f"{options.builddir}/tests/bench/ps_bench", "ours", str(kib), str(updates(kib))]
    with server(options) as environment:
        others = [subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) for _ in range(learners - 1)]
        try:
            return run_one(command, environment)
        finally:
            for other in others:
                other.wait(timeout=300)


def of_program(how):
    def measured(options, kib, learners):
        processes = learners if how == "naive" else max(2, learners)
        return run_one([f"{options.builddir}/tests/bench/ps_bench", how, str(kib), str(updates(kib)), str(processes)])
    return measured


def openmpi(options, kib, learners):
    return run_one(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(max(2, learners)),
                    f"{options.builddir}/tests/bench/ps_allreduce", str(kib), str(updates(kib))])


def gloo(_options, kib, learners):
    world = max(2, learners)
    with tempfile.TemporaryDirectory(prefix="bench-gloo-") as directory:
        def command(rank):
            return [PYTHON, f"{HERE}/gloo_allreduce.py", str(rank), str(world), f"{directory}/store", str(kib),
                    str(updates(kib))]
        others = [subprocess.Popen(command(rank), stdout=subprocess.DEVNULL) for rank in range(1, world)]
        try:
            return run_one(command(0))
        finally:
            for other in others:
                other.wait(timeout=300)


def peers():
    found = {"naive": of_program("naive"), "allreduce": of_program("allreduce")}
    if shutil.which("mpirun"):
        found["openmpi"] = openmpi
    if subprocess.run([PYTHON, "-c", "import torch"], check=False, capture_output=True, timeout=120).returncode == 0:
        found["gloo"] = gloo
    return found


def rounds_for(options, kib, peer):
    """gloo starts an interpreter with torch, and large arrays take long."""
    return options.count(6 if peer == "gloo" or kib > 65536 else ROUNDS)


def run(options):
    result = []
    ways = peers()
    for learners in LEARNERS:
        for kib in KIB if learners == 1 else KIB[::2]:
            label = f"{kib}KiB.{learners}"
            mine, theirs = [], {peer: [] for peer in ways}
            for i in range(rounds_for(options, kib, "")):
                mine.append(ours(options, kib, learners))
                for peer, measure in ways.items():
                    if i < rounds_for(options, kib, peer):
                        theirs[peer].append(measure(options, kib, learners))
            small = kib == KIB[0] and learners == 1
            result.append(rows.row(f"paramserver.update_us.{label}", mine, "us", "lower",
                                   SMALL_GOAL_US if small else None,
                                   note="a gradient in its slot pushed and applied, new weights pulled, by each of "
                                        f"{learners} learners with one server thread"))
            for peer, figures in theirs.items():
                goal = 1 if learners == 1 and kib >= 64 and peer == "openmpi" else None
                pairs = zip(figures, mine)
                result.append(rows.row(f"paramserver.vs_{peer}.{label}", [their / own for their, own in pairs], "x",
                                       "higher", goal, (f"{peer}, us", statistics.median(figures))))
    return result + [rows.left_out("paramserver.vs_ps-lite", "ps-lite has to be built by whoever has its source")]

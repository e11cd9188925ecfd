# SPDX-License-Identifier: Apache-2.0
"""An update of all parameters by way of the parameter server (a gradient that is already in its slot pushed and
applied, the new weights pulled), beside what else does as much on one node: a naive shared memory, the allreduce of
DeepSpeed's scheme on CPUs, Open MPI's, gloo's and ps-lite. These need two processes at least; a server and a learner are two."""
import contextlib
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import tempfile

import cluster
import rows

KIB = (4, 64, 1024, 16384, 65536, 262144)
LEARNERS = (1, 2, 4)
ROUNDS = 12
ROWS, ROWS_KIB, ROWS_GOAL = 64, 65536, 50
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


def ps_lite(options, kib, learners):
    """A scheduler, a server and workers, each a process, as ps-lite has them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port),
                   "DMLC_NODE_HOST": "127.0.0.1", "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": str(learners)}
    command = [f"{options.builddir}/tests/bench/ps_lite", str(kib), str(updates(kib))]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**environment, "DMLC_ROLE": role})
                 for role in ["scheduler", "server"] + ["worker"] * learners]
    try:
        said = [process.communicate(timeout=100)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    # Which of the workers is the first, ps-lite decides.
    return median_us("".join(said))


def has_ps_lite(options):
    """Whether PS_LITE is the folder of ps-lite's source, in which it is built."""
    source = os.environ.get("PS_LITE")
    if not source:
        return False
    top = pathlib.Path(HERE).parents[1]
    subprocess.run(["g++", "-std=c++20", "-O2", f"-I{top}", f"-I{source}/include", f"{HERE}/ps_lite.cc",
                    f"{source}/build/libps.a", "-lzmq", "-lprotobuf", "-pthread", "-o",
                    f"{options.builddir}/tests/bench/ps_lite"], check=True, timeout=300)
    return True


def peers(options):
    found = {"naive": of_program("naive"), "allreduce": of_program("allreduce")}
    if shutil.which("mpirun"):
        found["openmpi"] = openmpi
    if subprocess.run([PYTHON, "-c", "import torch"], check=False, capture_output=True, timeout=120).returncode == 0:
        found["gloo"] = gloo
    if has_ps_lite(options):
        found["ps-lite"] = ps_lite
    return found


def rounds_for(options, kib, peer):
    """gloo starts an interpreter with torch, processes of ps-lite look for one another, and large arrays take long."""
    return options.count(4 if peer in ("gloo", "ps-lite") or kib > 65536 else ROUNDS)


def compared(options, ways, kib, learners):
    """The rows of one size, and so many learners."""
    label = f"{kib}KiB.{learners}"
    mine, theirs, failed = [], {peer: [] for peer in ways}, {}
    for i in range(rounds_for(options, kib, "")):
        mine.append(ours(options, kib, learners))
        for peer, measure in ways.items():
            if i < rounds_for(options, kib, peer) and peer not in failed:
                try:
                    theirs[peer].append(measure(options, kib, learners))
                except (subprocess.SubprocessError, statistics.StatisticsError) as error:
                    failed[peer] = error
    small = kib == KIB[0] and learners == 1
    yield rows.row(f"paramserver.update_us.{label}", mine, "us", "lower", SMALL_GOAL_US if small else None,
                   note="a gradient in its slot pushed and applied, new weights pulled, by each of "
                        f"{learners} learners with one server thread")
    for peer, error in failed.items():
        yield rows.left_out(f"paramserver.vs_{peer}.{label}", error)
    for peer, figures in theirs.items():
        if peer in failed:
            continue
        goal = 1 if learners == 1 and kib >= 64 and peer == "openmpi" else None
        yield rows.row(f"paramserver.vs_{peer}.{label}", [their / own for their, own in zip(figures, mine)], "x",
                       "higher", goal, (f"{peer}, us", statistics.median(figures)))


def rows_row(options):
    """An update of a few rows of a matrix, as of an embedding, against one of all of it."""
    whole, some = [], []
    for _ in range(options.count(ROUNDS)):
        whole.append(ours(options, ROWS_KIB, 1))
        with server(options) as environment:
            some.append(run_one([f"{options.builddir}/tests/bench/ps_bench", "rows", str(ROWS_KIB), "500", str(ROWS)],
                                environment))
    return rows.row(f"paramserver.rows_vs_whole.{ROWS_KIB}KiB", [all_us / some_us for all_us, some_us in zip(whole, some)],
                    "x", "higher", ROWS_GOAL, ("an update of all rows, us", statistics.median(whole)),
                    note=f"an update of {ROWS} rows of 256 bytes takes {statistics.median(some):.1f} us")


def run(options):
    yield rows_row(options)
    ways = peers(options)
    for learners in LEARNERS:
        for kib in KIB if learners == 1 else KIB[::2]:
            yield from compared(options, ways, kib, learners)
    if "ps-lite" not in ways:
        yield rows.left_out("paramserver.vs_ps-lite", "PS_LITE does not say where its source is, built to build/libps.a")

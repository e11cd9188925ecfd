# SPDX-License-Identifier: Apache-2.0
"""What a stub of an elastic object adds to a call: null calls by it against bare ones of gRPC, over TLS to processes
on this machine, in turns."""
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import rows

TOP = pathlib.Path(__file__).resolve().parents[3]
# Debian's own: another python3 earlier in PATH lacks its packages.
PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
GOAL = 1.2
REPEATS = 24
# The calls of a turn: some tenths of a second.
CALLS = {"python": {1: 500, 8: 60}, "cpp": {1: 1500, 8: 400}}
READY_S = 30


@contextlib.contextmanager
def ended(process):
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=30)


@contextlib.contextmanager
def members(directory, programs):
    """A keeper, and for each language a member of its own pool and a bare server; their pools and addresses."""
    sys.path[:0] = [str(TOP / "python"), str(TOP / "tests/unit/python")]
    import pool_support  # pylint: disable=import-outside-toplevel
    with contextlib.ExitStack() as stack:
        found = {}
        for job, (language, command) in enumerate(programs.items(), 1):
            pool = f"{directory}/pools/{language}"
            pool_support.make_key(pool)
            keeper = pool_support.Keeper(pool)
            stack.callback(keeper.end)
            where = type("Where", (), {"path": staticmethod(lambda name: f"{directory}/{name}")})
            member = pool_support.Process(where, pool, job, *command, "serve")
            stack.callback(member.close)
            deadline = time.monotonic() + READY_S
            while not member.is_ready():
                if time.monotonic() > deadline:
                    raise RuntimeError(f"a member in {language} is not ready: {member.said()}")
                time.sleep(0.05)
            keeper.say(member.as_member())
            environment = {**os.environ, "BELLOWS_POOL": pool, "PYTHONPATH": str(TOP / "python")}
            bare = stack.enter_context(ended(subprocess.Popen([*command, "bare"], stdout=subprocess.PIPE, text=True,
                                                              env=environment)))
            found[language] = (pool, f"127.0.0.1:{bare.stdout.readline().strip()}", environment)
        yield found


def measured(command, place, threads, calls, repeats):
    pool, address, environment = place
    done = subprocess.run([*command, "call", pool, address, str(threads), str(calls), str(repeats)], check=True,
                          capture_output=True, text=True, timeout=300, env=environment)
    return [tuple(map(float, line.split())) for line in done.stdout.splitlines()]


def run(options):
    programs = {"python": [PYTHON, str(TOP / "tests/bench/stub_calls.py")],
                "cpp": [f"{options.builddir}/tests/bench/object_bench"]}
    if subprocess.run([PYTHON, "-c", "import grpc, msgpack"], check=False, capture_output=True, timeout=60).returncode:
        yield rows.left_out("pool.stub_python", "there is no python3-grpcio or python3-msgpack")
        del programs["python"]
    with tempfile.TemporaryDirectory(prefix="bench-pool-") as directory, members(directory, programs) as places:
        for language, command in programs.items():
            for threads, calls in CALLS[language].items():
                pairs = measured(command, places[language], threads, calls, options.count(REPEATS))
                kind = "latency" if threads == 1 else "rate"
                alone = statistics.median(bare for _, bare in pairs)
                baseline = ("bare gRPC, us", alone * 1e6) if threads == 1 else ("bare gRPC, calls/s", threads / alone)
                yield rows.row(f"pool.stub_{language}_{kind}", [stub / bare for stub, bare in pairs], "x", "lower", GOAL,
                               baseline, note=None if threads == 1 else
                               f"time of a call in each of {threads} threads at once")

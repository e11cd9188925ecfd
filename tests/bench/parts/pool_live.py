# SPDX-License-Identifier: Apache-2.0
"""From the jump of a metric to the first call that a new member serves, on an embedded cluster, beside the start of
a batch script by Slurm alone, in turns; and how long a null call waits meanwhile."""
import json
import os
import statistics
import subprocess
import time

import cluster
import rows

TOP = cluster.TOP
PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
REPEATS = 16
# Beyond Slurm's own start: the keeper's decision, the member's interpreter, and what callers hear.
GOAL_S = 1.0

POLICY = """max: 2
burst_interval: 1
stabilisation: 1
panic_window: 0
targets: [{metric: load, per_member: 10, of: mean}]
"""

MEMBER = """
import os, threading, time
from bellows import pool

class Probe(pool.ElasticObject):
    @pool.idempotent
    def who(self):
        return os.getpid()

def say():
    while True:
        with open("load") as file:
            text = file.read()
        if text:
            pool.metric("load", float(text))
        time.sleep(0.02)

threading.Thread(target=say, daemon=True).start()
Probe().serve()
"""

SCRIPT = """#!/bin/bash
export PYTHONPATH={top}/python PYTHONDONTWRITEBYTECODE=1
exec bellows pool member -- {python} {home}/member.py
"""

# Inside the cluster: entering it takes longer than what is timed.
PROBE = """
import json, subprocess, sys, time
from bellows import pool

def show():
    return json.loads(subprocess.run(["bellows", "pool", "show", "probe", "--json"], capture_output=True, text=True).stdout or "{}")

def until(condition, what):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(what + ": " + json.dumps(show()))
        time.sleep(0.05)

def load(value):
    with open("load", "w") as file:
        file.write(value)

def slurm_start():
    begin = time.time()
    subprocess.run(["sbatch", "--wait", "--output=/dev/null", "--wrap=date +%s.%N >started"], check=True, capture_output=True)
    with open("started") as file:
        return float(file.read()) - begin

def grow(stub):
    begin = time.monotonic()
    load("15")
    known = {stub.who()}
    slowest = 0
    while len(known) < 2:
        if time.monotonic() > begin + 60:
            raise RuntimeError("no second member: " + json.dumps(show()))
        called = time.monotonic()
        known.add(stub.who())
        slowest = max(slowest, time.monotonic() - called)
        time.sleep(0.005)
    return time.monotonic() - begin, slowest

with pool.connect("probe") as stub:
    for _ in range(int(sys.argv[1])):
        until(lambda: show().get("ready") == 1 and len(show()["members"]) == 1, "the pool is not at one member")
        alone = slurm_start()
        took, slowest = grow(stub)
        load("5")
        print(alone, took, slowest, flush=True)
"""


def run(options):
    done = subprocess.run([PYTHON, "-c", "import grpc, msgpack"], check=False, capture_output=True, timeout=60)
    if done.returncode:
        yield rows.left_out("pool.scale_s", "there is no python3-grpcio or python3-msgpack")
        return
    with cluster.Cluster(options.builddir, "--nodes", "2", "--gpus", "1") as place:
        home = place.home()
        files = {"policy.yaml": POLICY, "member.py": MEMBER, "probe.py": PROBE, "load": "5",
                 "member.sbatch": SCRIPT.format(top=TOP, python=PYTHON, home=home)}
        for name, text in files.items():
            with open(f"{home}/{name}", "w", encoding="utf-8") as stream:
                stream.write(text)
            os.chmod(f"{home}/{name}", 0o666)
        place.exec("bellows", "pool", "create", "probe", "--policy", "policy.yaml", "member.sbatch")
        end = time.monotonic() + 60
        while json.loads(place.exec("sh", "-c", "bellows pool show probe --json || echo '{}'")).get("ready") != 1:
            if time.monotonic() > end:
                raise RuntimeError("the pool has no member")
            time.sleep(0.2)
        output = place.exec(PYTHON, "-B", "probe.py", str(options.count(REPEATS)), env=[f"PYTHONPATH={TOP}/python"],
                            timeout=500)
        samples = [tuple(map(float, line.split())) for line in output.splitlines()]
    alone = statistics.median(a for a, _, _ in samples)
    yield rows.row("pool.scale_s", [took for _, took, _ in samples], "s", "lower", goal=alone + GOAL_S,
                   baseline=("start of a batch script by sbatch, s", alone),
                   note="from the metric's jump to the first call that the new member serves")
    yield rows.row("pool.scale_over_slurm_s", [took - a for a, took, _ in samples], "s", "lower", goal=GOAL_S)
    yield rows.row("pool.call_while_growing_s", [slowest for _, _, slowest in samples], "s", "lower",
                   note="the slowest null call meanwhile")

# SPDX-License-Identifier: Apache-2.0
"""Agility of a pool on an embedded cluster, against the simulation of the same load with the start times that were measured.

Members tell the pool what the load needs, and take calls after a while. Ready is what the keeper tells callers. A member's
start is measured from the keeper's decision, since sbatch takes members one after the other; and how long the keeper takes
to hear of a change is measured where the load jumps. The simulation has both, and nothing else of the cluster."""
import bisect
import json
import os
import statistics
import subprocess
import time

import cluster
import rows

TOP = cluster.TOP
PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
LOADS = ("steps", "cyclic")
REPEATS = 3
# Levels that noise does not take across a whole number.
PEAK = 7.3
TICK_S = 0.5
TICKS = 240
# Of the simulation: shorter than what it is told.
FINE = 5
GOAL = 1.15

# The window is longer than a start, which the keeper measures without the time of sbatch.
POLICY = """min: 1
max: 8
stabilisation: 6
targets: [{metric: load, per_member: 1, of: mean}]
"""

# It takes a while, as one does that loads what it serves.
MEMBER = """
import time
from bellows import pool
from bellows.pool import agent

said, at = "", 0
def say():
    global said, at
    with open("load") as file:
        text = file.read()
    if text and (text != said or time.monotonic() > at + 1):
        pool.metric("load", float(text))
        said, at = text, time.monotonic()

end = time.monotonic() + 1.5
agent.listen(9)
say()
while time.monotonic() < end:
    time.sleep(0.1)
    say()
agent.ready()
while True:
    time.sleep(0.1)
    say()
"""

SCRIPT = """#!/bin/bash
#SBATCH --cpus-per-task=1
export PYTHONPATH={top}/python PYTHONDONTWRITEBYTECODE=1
exec bellows pool member -- {python} {home}/member.py
"""

# Inside the cluster: plays the load, and says when the keeper names whom as ready, and what it wants and has.
PLAYER = """
import json, os, subprocess, sys, threading, time
from bellows.pool import members

load, tick = json.loads(sys.argv[1]), float(sys.argv[2])
told, shown, over = [], [], threading.Event()

def on_members(listed):
    told.append((time.monotonic(), [one.job for one in listed if one.state == members.READY]))

def show():
    while not over.is_set():
        begin = time.monotonic()
        done = subprocess.run(["bellows", "pool", "show", "agile", "--json"], capture_output=True, text=True)
        if done.returncode == 0:
            pool = json.loads(done.stdout)
            shown.append((begin, pool["wanted"], [(one["job"], one["state"]) for one in pool["members"]]))
        over.wait(max(0, begin + 0.2 - time.monotonic()))

def say(value):
    with open("load", "w") as file:
        file.write(f"{value:.6g}")

watch = members.Watch(os.path.expanduser("~/.bellows/pools/agile"), on_members)
threading.Thread(target=show).start()
say(load[0])
needed = max(1, -int(-load[0] // 1))
end = time.monotonic() + 90
settled = time.monotonic()
while time.monotonic() < settled + 8:
    if not told or not shown or len(told[-1][1]) != needed or shown[-1][1] != needed or len(shown[-1][2]) != needed:
        settled = time.monotonic()
    if time.monotonic() > end:
        over.set()
        sys.exit(f"the pool does not settle: {shown[-1:]} {told[-1:]}")
    time.sleep(0.1)
del told[:-1]
begin = time.monotonic()
for number, value in enumerate(load):
    say(value)
    time.sleep(max(0, begin + (number + 1) * tick - time.monotonic()))
over.set()
watch.close()
print(json.dumps({"begin": begin, "told": told, "shown": shown}))
"""


def needed_of(value):
    return max(1, -int(-value // 1))


def agility(load, begin, told):
    """Mean over time of ready members above or below those needed."""
    end = begin + len(load) * TICK_S
    off, times = 0, [at for at, _ in told]
    for number, value in enumerate(load):
        at, until = begin + number * TICK_S, begin + (number + 1) * TICK_S
        while at < until:
            index = bisect.bisect_right(times, at) - 1
            ready = len(told[max(index, 0)][1])
            following = times[index + 1] if index + 1 < len(times) else end
            off += abs(ready - needed_of(value)) * (min(until, following) - at)
            at = min(until, following)
    return off / (end - begin)


def starts_of(begin, told, shown):
    """Seconds from decisions to readiness, in the order of decisions."""
    ready_at = {}
    for at, jobs in told:
        for job in jobs:
            ready_at.setdefault(job, at)
    owed, decided, known = [], {}, {job for job, _ in shown[0][2]}
    for at, wanted, states in shown:
        staying = [job for job, state in states if state != "draining"]
        for job in sorted(set(staying) - known):
            decided[job] = owed.pop(0) if owed else at
        known.update(job for job, _ in states)
        lacking = max(0, wanted - len(staying))
        del owed[lacking:]
        owed += [at] * (lacking - len(owed))
    return [ready_at[job] - at for job, at in sorted(decided.items()) if job in ready_at and at >= begin]


def notices_of(load, begin, shown):
    """Seconds from a jump of the load to the keeper's decision."""
    notices = []
    for number, (before, after) in enumerate(zip(load, load[1:]), 1):
        if needed_of(after) < needed_of(before) + 2:
            continue
        jump = begin + number * TICK_S
        notices.append(next((at for at, wanted, _ in shown if at > jump and wanted >= needed_of(after)), jump) - jump)
    return notices


def simulated(options, policy, load, notice, starts):
    fine = "\n".join(str(value) for value in load for _ in range(FINE))
    command = [f"{options.builddir}/tests/bench/pool_bench", "again", policy, str(TICK_S / FINE), str(notice)]
    done = subprocess.run([*command, *map(str, starts)], input=fine, capture_output=True, text=True, check=True, timeout=60)
    return float(done.stdout)


def load_of(options, name):
    done = subprocess.run([f"{options.builddir}/tests/bench/pool_bench", "load", name, str(PEAK), str(TICKS)],
                          capture_output=True, text=True, check=True, timeout=60)
    return [float(line) for line in done.stdout.split()]


def make_pool(place):
    home = place.home()
    files = {"policy.yaml": POLICY, "member.py": MEMBER, "player.py": PLAYER, "load": "1",
             "member.sbatch": SCRIPT.format(top=TOP, python=PYTHON, home=home)}
    for name, text in files.items():
        with open(f"{home}/{name}", "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(f"{home}/{name}", 0o666)
    place.exec("bellows", "pool", "create", "agile", "--policy", "policy.yaml", "member.sbatch")
    cluster.wait(lambda: json.loads(place.exec("sh", "-c", "bellows pool show agile --json || echo '{}'")).get("ready"), 60,
                 "member")


def run(options):
    if subprocess.run([PYTHON, "-c", "import grpc"], check=False, capture_output=True, timeout=60).returncode:
        yield rows.left_out("pool.agility_live", "there is no python3-grpcio")
        return
    loads = {name: load_of(options, name) for name in LOADS}
    plays = {name: [] for name in LOADS}
    with cluster.Cluster(options.builddir, "--nodes", "2", "--gpus", "1") as place:
        make_pool(place)
        for _ in range(options.count(REPEATS)):
            for name, load in loads.items():
                output = place.exec(PYTHON, "-B", "player.py", json.dumps(load), str(TICK_S),
                                    env=[f"PYTHONPATH={TOP}/python"], timeout=TICKS * TICK_S + 120)
                plays[name].append(json.loads(output))
        policy = f"{place.home()}/policy.yaml"
        notice = statistics.median(seconds for one in plays["steps"]
                                   for seconds in notices_of(loads["steps"], one["begin"], one["shown"]))
        for name, load in loads.items():
            yield from of_load(options, name, load, plays[name], policy, notice)


def of_load(options, name, load, plays, policy, notice):
    live = [agility(load, one["begin"], one["told"]) for one in plays]
    starts = [starts_of(one["begin"], one["told"], one["shown"]) for one in plays]
    again = [simulated(options, policy, load, notice, one) for one in starts]
    yield rows.row(f"pool.agility_live.{name}", live, "members", "lower",
                   baseline=("simulated, members", statistics.median(again)),
                   note=f"starts of {statistics.median(sum(starts, [])):.1f} s, seen by the keeper after {notice:.2f} s")
    yield rows.row(f"pool.agility_live.{name}_from_simulated", [max(a / b, b / a) for a, b in zip(live, again)], "ratio",
                   "lower", goal=GOAL, note=f"live is {statistics.median(a / b for a, b in zip(live, again)):.2f} times")

# SPDX-License-Identifier: Apache-2.0
"""Submissions per second through libslurm: the same held jobs to four clusters, in turn.

Without a job_submit plugin; with ours, with and without a hook in Lua; and with Slurm's own
job_submit/lua, whose script makes the same checks and the same changes. The first of them also gets
the jobs as ours admits them: what these cost more there, slurmctld itself spends on them.
"""
import contextlib
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile

import cluster
import rows
import submit_policy

ROUNDS = 80
JOBS = 120
THREADS = 4
ACCOUNT = "account49"

# Cancelled jobs go soon, so that the table does not grow. The job files lie in memory: how long ext4
# looks for a free inode depends on how many were just deleted, and hides everything else.
CONF = "MaxJobCount=100000\nMinJobAge=5\nStateSaveLocation=/run/slurmctld-state\n"


class Load:
    """A client inside one cluster."""

    def __init__(self, builddir, place, *options):
        self.place = place
        self.rates = []
        self.process = subprocess.Popen(
            place.command(f"{builddir}/tests/bench/submit_load", str(THREADS), ACCOUNT, *options),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()

    def __call__(self, jobs):
        """Submissions per second, and the id of one that was cancelled since."""
        self.process.stdin.write(f"{jobs}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("submit_load ended")
        done = json.loads(line)
        return done["jobs"] / done["seconds"], done["last"]

    def shown(self):
        return self.place.exec("scontrol", "show", "job", str(self(THREADS)[1]))

    def check(self, wanted):
        """What is measured must be what it is called."""
        shown = self.shown()
        for text, expected in wanted.items():
            if (text in shown) != expected:
                raise RuntimeError(f"{'no' if expected else 'an unexpected'} {text} in: {shown}")


def clusters(options, scratch, stack):
    """Clusters by the name of what decides there."""
    def up(name, *arguments):
        places[name] = stack.enter_context(
            cluster.Cluster(options.builddir, "--nodes", "1", *arguments, slurm_conf=CONF))
    places = {}
    up("none", "--no-plugins")
    up("ours", "--bellows-conf", submit_policy.write(scratch, "plain"))
    up("lua", "--bellows-conf", submit_policy.write(scratch, "lua", lua=True))
    places["lua"].reconfigure("", **{"rules.lua": submit_policy.RULES})
    up("slurm", "--no-plugins")
    here = os.path.dirname(os.path.abspath(__file__))
    with open(f"{here}/job_submit.lua", encoding="utf-8") as stream:
        places["slurm"].reconfigure("JobSubmitPlugins=lua\n", **{"job_submit.lua": stream.read()})
    return places


CONTRACT = "AdminComment=bellows/1 tenant=tenant49 framework=framework7:2.1 gpus=1-8 "
HOOKED = f"Comment={submit_policy.HOOKED}"
WANTED = {"none": (False, False), "ours": (True, False), "lua": (True, True), "slurm": (True, True)}


def check_admitted(ours, admitted):
    """The two jobs are the same, but for what each job has of its own and for AdminComment."""
    own = re.compile(r"JobId=|Time=|LastSched|Sid=|Comment=|Std(Err|In|Out)=")
    jobs = [[line for line in load.shown().splitlines() if not own.search(line)]
            for load in (ours, admitted)]
    if jobs[0] != jobs[1]:
        raise RuntimeError(f"submit_load --admitted is no longer what admission makes: {jobs}")


def measure(options, scratch):
    rng = random.Random(1)
    with contextlib.ExitStack() as stack:
        places = clusters(options, scratch, stack)
        loads = {name: stack.enter_context(Load(options.builddir, place))
                 for name, place in places.items()}
        for name, load in loads.items():
            load.check(dict(zip((CONTRACT, HOOKED), WANTED[name])))
        loads["admitted"] = stack.enter_context(
            Load(options.builddir, places["none"], "--admitted"))
        check_admitted(loads["ours"], loads["admitted"])
        for load in loads.values():
            load(JOBS)
        for _ in range(options.count(ROUNDS)):
            for name in rng.sample(list(loads), len(loads)):
                loads[name].rates.append(loads[name](JOBS)[0])
        return {name: load.rates for name, load in loads.items()}


def run(options):
    scratch = tempfile.mkdtemp(prefix="bellows-bench-")
    try:
        rates = measure(options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    ratio = {name: [a / b for a, b in zip(rates[name], rates["none"])] for name in rates}
    slurm = ("job_submit/lua", statistics.median(ratio["slurm"]))
    return [
        rows.row("submit.per_second", rates["ours"], "/s", "higher",
                 baseline=("without a plugin", statistics.median(rates["none"]))),
        rows.row("submit.throughput_ratio", ratio["ours"], "x", "higher", 0.98, slurm),
        rows.row("submit.admitted_form_ratio", ratio["admitted"], "x", "higher"),
        rows.row("submit.ratio_to_admitted_form",
                 [a / b for a, b in zip(rates["ours"], rates["admitted"])], "x", "higher"),
        rows.row("submit.lua_throughput_ratio", ratio["lua"], "x", "higher", baseline=slurm),
        rows.row("submit.slurm_lua_ratio", ratio["slurm"], "x", "higher"),
    ]

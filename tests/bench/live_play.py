#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays a workload of bellows-simulate(1) on an embedded cluster: each job is submitted at its time, for its
tenant, and trains with tests/cluster/programs/replay.

Prints what became of it as JSON: of each job when it ended and what is wrong with it; over all jobs the
mean completion, and what a start and a change of size cost, for --start and --restart of bellows simulate.

Exit status: 0 every job is right; 1 not, or it can't be told; 2 bad usage.
"""
import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import time
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../lib")]
sys.dont_write_bytecode = True

import cluster  # pylint: disable=wrong-import-position
import slurm_log  # pylint: disable=wrong-import-position

CHECK_LEDGER = os.path.join(HERE, "../lib/check-ledger")
USERS = {"vision": "alice", "speech": "carol"}
LINE = re.compile(r"(start|stop|finish) step=(\d+) ranks=(\d+) nodes=(\d+) time=(\d+\.\d+)")

SCRIPT = """#!/bin/bash
exec bellows run --kind=plain -- {replay} --model {model} --log {home}.log --ledger {home}.ledger
"""


class Running(cluster.Cluster):
    """One that somebody else has started and will stop."""

    def __init__(self, directory):  # pylint: disable=super-init-not-called
        self.dir = os.path.realpath(directory)


class Event(typing.NamedTuple):
    """What rank 0 of a job noted."""
    what: str
    step: int
    ranks: int
    nodes: int
    time: float


class Job:
    """A line of the workload, and the job it became."""

    def __init__(self, line, models):
        self.name, self.tenant = line["name"], line["tenant"]
        self.at, self.gpus = float(line["time"]), int(line["num_replicas"])
        self.model = f"{models}/{line['application']}"
        self.sizes = plain_sizes(self.model, int(line["batch_size"]))
        self.id = self.home = None

    def submit(self, place, replay):
        user = USERS[self.tenant]
        self.home = f"{place.home(user)}/{self.name}"
        script = f"{place.dir}/shared/{self.name}.sh"
        with open(script, "w", encoding="utf-8") as stream:
            stream.write(SCRIPT.format(replay=replay, model=self.model, home=self.home))
        self.id = place.exec("sbatch", "--parsable", f"--account={self.tenant}", "--framework=plain",
                             "--gpus-range=" + ",".join(map(str, self.sizes)), f"--gpus={self.gpus}",
                             f"--job-name={self.name}", f"--output={self.home}.out",
                             "--open-mode=append", script, user=user).strip()

    def events(self):
        try:
            with open(self.home + ".log", encoding="utf-8") as stream:
                found = LINE.findall(stream.read())
        except FileNotFoundError:
            found = []
        return [Event(what, int(step), int(ranks), int(nodes), float(moment))
                for what, step, ranks, nodes, moment in found]

    def complaints(self, place, events):
        """What is wrong with it at its end, one sentence each."""
        shown = place.exec("scontrol", "--oneliner", "show", "job", self.id, user="root")
        state = re.search(r"JobState=(\S+)", shown)[1]
        if state != "COMPLETED" or not events or events[-1].what != "finish":
            return [f"{self.name} ended {state}: " + self.last_words()]
        done = subprocess.run([CHECK_LEDGER, "--quiet", self.home + ".ledger"], capture_output=True,
                              text=True, check=False, timeout=300)
        wrong = [] if done.returncode == 0 else [f"{self.name}: {done.stderr.strip()}"]
        return wrong + [f"{self.name} had {event.ranks} ranks, which its contract has not"
                        for event in events if event.ranks not in self.sizes]

    def last_words(self):
        try:
            with open(self.home + ".out", encoding="utf-8", errors="replace") as stream:
                return stream.read()[-600:]
        except FileNotFoundError:
            return "it never ran"


def plain_sizes(model, batch):
    """What a job of this batch can be divided among: powers of 2 on a node of 4 GPUs, or whole nodes."""
    with open(model + "/placements.csv", encoding="utf-8") as stream:
        smallest = min(int(line["local_bsz"]) for line in csv.DictReader(stream))
    most = max(1, min(32, batch // smallest))
    return [size for size in range(1, most + 1) if size in (1, 2) or size % 4 == 0]


def read_jobs(workload, models):
    with open(workload, encoding="utf-8") as stream:
        return sorted((Job(line, models) for line in csv.DictReader(stream)), key=lambda job: job.at)


def gaps(events):
    """Seconds without a step at each change of the job."""
    return [start.time - stop.time for stop, start in zip(events, events[1:])
            if (stop.what, start.what) == ("stop", "start")]


class Clock:
    """When slurmctld submitted, started and ended each job, in seconds since 1970."""

    def __init__(self, place):
        self.log = f"{place.dir}/log/slurmctld.log"

    def first(self, words):
        moments = slurm_log.logged(self.log, words)
        if not moments:
            raise RuntimeError(f"slurmctld's log has no line {words}")
        return moments[0]

    def of(self, job):
        return (self.first(rf"^_slurm_rpc_submit_batch_job: JobId={job.id} "),
                self.first(rf"(?:Allocate|Started) JobId={job.id} "),
                self.first(rf"^_job_complete: JobId={job.id} done"))


def outcome_of(place, job):
    events = job.events()
    wrong = job.complaints(place, events)
    if wrong:
        return {"name": job.name, "wrong": wrong}
    submitted, started, ended = Clock(place).of(job)
    return {"name": job.name, "wrong": [], "completion_s": ended - submitted,
            "waited_s": started - submitted,
            "start_s": events[0].time - started + ended - events[-1].time,
            "gaps_s": gaps(events),
            "sizes": [event.ranks for event in events if event.what == "start"],
            "nodes": [event.nodes for event in events if event.what == "start"]}


def summary(jobs):
    """With the means over jobs that are right."""
    right = [job for job in jobs if not job["wrong"]]
    changes = [gap for job in right for gap in job["gaps_s"]]
    return {"wrong": [text for job in jobs for text in job["wrong"]],
            "mean_s": statistics.mean(job["completion_s"] for job in right) if right else None,
            "start_s": statistics.mean(job["start_s"] for job in right) if right else None,
            "restart_s": statistics.mean(changes) if changes else None,
            "restarts": len(changes), "jobs": jobs}


def play(place, replay, workload, models, limit):
    """What became of the jobs, all of which must have ended `limit` seconds after the first came."""
    jobs = read_jobs(workload, models)
    begin = time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, begin + job.at - time.monotonic()))
        job.submit(place, replay)
        cluster.note(f"{time.monotonic() - begin:.0f} s: {job.name} is job {job.id}")
    ids = ",".join(job.id for job in jobs)

    def over():
        return not place.exec("squeue", "--noheader", "--jobs", ids, user="root").strip()
    while not over():
        if time.monotonic() > begin + limit:
            raise RuntimeError(f"not all jobs ended within {limit} s:\n" +
                               place.exec("squeue", user="root"))
        time.sleep(1)
    return summary([outcome_of(place, job) for job in jobs])


def simulate(builddir, workload, models, scheduler, *options):
    """What the simulator makes of the same workload."""
    done = subprocess.run([f"{builddir}/launcher/bellows", "simulate", "--json", "--models", models,
                           "--scheduler", scheduler, "--round", "1", *map(str, options), workload],
                          capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cluster", help="the directory of the embedded cluster")
    parser.add_argument("workload", help="as bellows simulate reads it, with a column tenant")
    parser.add_argument("--models", required=True, help="what was measured, where all nodes can read it")
    parser.add_argument("--replay", required=True, help="the program that the ranks run")
    parser.add_argument("--limit", type=float, default=900, metavar="SECONDS",
                        help="all jobs must have ended by then (900)")
    parser.add_argument("--output", metavar="FILE", help="write the JSON here")
    options = parser.parse_args()
    try:
        told = play(Running(options.cluster), options.replay, options.workload, options.models,
                    options.limit)
    except (RuntimeError, OSError) as error:
        print(f"live_play: {error}", file=sys.stderr)
        return 1
    with open(options.output or "/dev/stdout", "w", encoding="utf-8") as stream:
        stream.write(json.dumps(told, indent=1) + "\n")
    return 1 if told["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())

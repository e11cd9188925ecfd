# SPDX-License-Identifier: Apache-2.0
"""Plans that bellowsd carries out on 4 nodes of 4 GPUs.

From the end of a job to the next sizes of four others, which share its GPUs; and how many of a
hundred waiting jobs step between while plans move others, beside resizes without a reservation.
"""
import concurrent.futures
import contextlib
import json
import os
import re
import statistics
import time
import typing

import cluster
import requeue
import rows
import slurm_log

GOAL_S = 6
PLANS = 12
ROUNDS = 2  # of newcomers
NEWCOMERS = 6
BARE = 4  # pairs of resizes that nothing protects

POLICY = """version: 1
controller: {{addresses: ["ctl:6830"], dwell: 5, restarts_per_hour: 1000, make_room: {}}}
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks:
  plain: {{}}
tenants:
  all:
    gpus: {{min: 1, max: 16, elastic: auto}}
default_tenant: all
"""

# Of a user who does not use Bellows.
HOLDER = """#!/bin/bash
until [ -e ~/end-$SLURM_JOB_ID ]; do sleep 0.02; done
echo "$EPOCHREALTIME" >~/ended-$SLURM_JOB_ID
"""

MEMBER = re.compile(r"plan (\w+): job (\d+) (\d+) -> (\d+)")
PLAN_OVER = re.compile(r"plan (\w+): all sizes run after")


class Place(cluster.Cluster):
    """With bellowsd, whose plans are read from its log."""

    def plans(self):
        """The jobs of each plan that was carried out, in order."""
        with open(f"{self.dir}/log/bellowsd.log", encoding="utf-8") as stream:
            text = stream.read()
        members = {}
        for name, job, _, _ in MEMBER.findall(text):
            members.setdefault(name, []).append(job)
        return [members[name] for name in PLAN_OVER.findall(text)]

    def wait_quiet(self, jobs):
        """Until bellowsd could move each of these jobs and wants to move none."""
        wanted = {int(job.id) for job in jobs}

        def quiet():
            try:
                shown = json.loads(self.exec("bellows", "plan", "--json"))
            except RuntimeError:
                return False
            # One that has just started has not looked yet.
            still = {line["job"] for pool in shown.get("pools", ()) for line in pool["jobs"]
                     if line["reason"] == "stays"}
            return wanted <= still and shown["in_force"] is None
        cluster.wait(quiet, 90, "rest between two plans")

    def next_plan(self, before, seconds=90):
        """The jobs of the plan after so many."""
        cluster.wait(lambda: len(self.plans()) > before, seconds, "plan carried out")
        return self.plans()[before]

    def cancel_all(self):
        for user in ("alice", "bob"):
            self.exec("scancel", "--user", user, user="root")
        cluster.wait(lambda: not self.exec("squeue", "--noheader", user="root").strip(), 60,
                     "end of all jobs")


@contextlib.contextmanager
def elastic_cluster(options, make_room, slurm_conf=""):
    with cluster.policy_file(POLICY.format(make_room)) as policy:
        with Place(options.builddir, "--nodes=4", "--gpus=4", "--elastic", "--bellows-conf", policy,
                   slurm_conf=slurm_conf) as place:
            yield place


def submit_elastic(place, gpus, options):
    """One that scales perfectly. Without waiting for its start."""
    command = (f"exec bellows run --kind=plain -- {requeue.own_pace(options)} --shared 0.4 "
               "--log firsts-$SLURM_JOB_ID")
    return requeue.Job(place, command, "--framework=plain", "--gpus-range=1-16", f"--gpus={gpus}",
                       waits=False)


def start_elastic(place, sizes, options):
    """Jobs of these sizes, side by side before bellowsd sees them."""
    place.call("stop-bellowsd", timeout=60)
    jobs = [submit_elastic(place, gpus, options) for gpus in sizes]
    for job in jobs:
        job.wait_start(0, 60)
        job.wait_training()
    return jobs


class Holder:
    """A job that keeps half of the GPUs from the elastic ones until it is told to end."""

    def __init__(self, place):
        self.place = place
        path = f"{place.dir}/shared/holder.sh"
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(HOLDER)
        os.chmod(path, 0o755)
        self.id = place.exec("sbatch", "--parsable", "--gpus=8", "--output=/dev/null", path,
                             user="bob").strip()

    def wait_running(self):
        cluster.wait(lambda: self.place.exec("squeue", "--noheader", "--states=RUNNING",
                                             "--jobs", self.id, user="root").strip(),
                     90, f"start of job {self.id}")

    def end(self):
        """When its script ended."""
        home = self.place.home("bob")
        self.place.exec("touch", f"end-{self.id}", user="bob")
        ended = f"{home}/ended-{self.id}"

        def moment():
            with contextlib.suppress(FileNotFoundError, ValueError):
                with open(ended, encoding="utf-8") as stream:
                    return float(stream.read())
            return None
        return cluster.wait(moment, 30, f"end of job {self.id}")


class Plan(typing.NamedTuple):
    """Seconds from a job's end."""
    order: float  # to the first request for a requeue: bellowsd sees it, all jobs save and stop
    whole: float  # to the last batch script at its next size
    stepped: float  # to the last rank's first step there
    slurm: float  # of `whole`, from the first request for a requeue


def launched(job, after):
    """When a slurmd first took its batch script; the job has been running for a moment then."""
    return cluster.wait(lambda: next((moment for moment in job.launches() if moment > after), None),
                        60, f"launch of job {job.id}")


def timed_plan(place, jobs, holder):
    """The plan that follows the holder's end; None if it moved fewer jobs."""
    begun = len(place.plans())
    clocks = time.time() - time.monotonic()
    end = holder.end()
    if sorted(place.next_plan(begun)) != sorted(job.id for job in jobs):
        return None
    launches = [launched(job, end) for job in jobs]
    asked = min(requeue.first_after(end, job.sizes(), f"slurmctld's log of job {job.id}")
                for job in jobs)

    def stepped():
        found = [[moment + clocks for moment in job.steps() if moment + clocks > launch]
                 for job, launch in zip(jobs, launches)]
        return all(len(moments) >= 4 for moments in found) and max(map(max, found))
    last = cluster.wait(stepped, 60, "first steps on 4 GPUs")
    return Plan(asked - end, max(launches) - end, last - end, max(launches) - asked)


def plans_after_ends(options):
    found = []
    with elastic_cluster(options, make_room=1) as place:
        holder = Holder(place)
        holder.wait_running()
        jobs = start_elastic(place, (2, 2, 2, 2), options)
        place.call("start-bellowsd", timeout=60)
        wanted = options.count(PLANS)
        for _ in range(2 * wanted):
            place.wait_quiet(jobs)
            plan = timed_plan(place, jobs, holder)
            if plan:
                found.append(plan)
            if len(found) == wanted:
                break
            place.wait_quiet(jobs)
            holder = Holder(place)
            holder.wait_running()
    if len(found) < wanted:
        raise RuntimeError(f"only {len(found)} of {2 * wanted} plans moved all four jobs")
    order, whole, stepped, slurm = (statistics.median(column) for column in zip(*found))
    cluster.note(f"a plan of four jobs: {order:.2f} s from a job's end until they have stopped at a "
                 f"checkpoint, {whole:.2f} until their batch scripts, {stepped:.2f} until all ranks "
                 f"have done a step; {slurm:.2f} of it are Slurm's")
    return found


def between(place, members, since):
    """How many other jobs Slurm started from the first requeue of `members` to the last of their starts,
    after `since`."""
    log = f"{place.dir}/log/slurmctld.log"
    requeued = [moment for moment, match in slurm_log.lines(log, r"^Requeuing JobId=(\d+)")
                if moment > since and match[1] in members]
    started = [(moment, match[1]) for moment, match in
               slurm_log.lines(log, r"(?:Allocate|Started) JobId=(\d+)") if moment > since]
    last = max(moment for moment, job in started if job in members)
    return sum(min(requeued) < moment < last and job not in members for moment, job in started)


def crowd_out(place, options):
    """Others each plan lets by: one elastic job after another comes, while a hundred jobs that the
    GPUs given up would do for have waited for longer."""
    jobs = start_elastic(place, (8, 8), options)
    requeue.keep_waiting(place)
    place.call("start-bellowsd", timeout=60)
    found = []
    for _ in range(options.count(NEWCOMERS)):
        place.wait_quiet(jobs)
        requeue.keep_waiting(place)
        begun, since = len(place.plans()), time.time()
        jobs.append(submit_elastic(place, 2, options))
        found.append(between(place, place.next_plan(begun), since))
    place.cancel_all()
    return found


def bare_resizes(place, options):
    """The same for two resizes at once, by which one job gives the other GPUs."""
    jobs = start_elastic(place, (8, 8), options)
    found = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for i in range(options.count(BARE)):
            requeue.keep_waiting(place)
            since = time.time()
            list(pool.map(requeue.resize, jobs, (10, 6) if i % 2 else (6, 10)))
            found.append(between(place, [job.id for job in jobs], since))
            for job in jobs:
                job.wait_training()
    place.cancel_all()
    return found


def run(options):
    cluster.note("plans after a job's end")
    plans = plans_after_ends(options)
    cluster.note("plans and bare resizes with 100 jobs waiting")
    with elastic_cluster(options, "never", requeue.AGING) as place:
        overtaken = [by for _ in range(options.count(ROUNDS)) for by in crowd_out(place, options)]
        bare = bare_resizes(place, options)
    return [
        rows.row("elastic.plan_s", [plan.whole for plan in plans], "s", "lower", GOAL_S,
                 baseline=("Slurm's share", statistics.median(plan.slurm for plan in plans)),
                 note="from a job's end to the batch scripts of four others, which grow from 2 to 4 GPUs"),
        rows.row("elastic.plan_to_step_s", [plan.stepped for plan in plans], "s", "lower",
                 note="and to the first step of all their ranks"),
        rows.row("elastic.overtaken", overtaken, "jobs", "lower", 0, figure=statistics.mean,
                 baseline=("two resizes at once", statistics.mean(bare)),
                 note="of 100 that wait for 2 GPUs each with a higher priority, those that start during "
                      "a plan in which 2 to 7 jobs make room for a new one"),
    ]

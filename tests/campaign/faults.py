# SPDX-License-Identifier: Apache-2.0
"""What is done to the jobs of a campaign, each for real."""
import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import time

from cluster import wait
from resize_check import ResizeCheck
from slurm_job import gpus_of, nodes_of
from work import PATIENCE

CALL_LIMIT = 120 * PATIENCE  # seconds, of a command of minicluster
# Seconds until a rank computes. One that is stopped before that hangs until the launcher's limit for a start, for which
# no campaign waits; bellowsd may have moved the job since it was seen to train.
SETTLED = 5 * PATIENCE


class CannotNow(Exception):
    """The job or the cluster is not in a state in which this fault can be done."""


class Fault:
    """One kind of fault. `restarts`: the ranks start again after it; else they only wait."""
    name = ""
    restarts = True
    whole_cluster = False
    weight = 1
    limit = 120  # seconds until the job must train again
    lasts = (0, 0)  # seconds until it is undone, at least and at most

    def prepare(self, cluster):
        """Waits until it may be done. What it takes is not of the fault."""

    def do(self, cluster, job, random):
        """Does it. CannotNow: not now. A fault of the whole cluster returns the node that it hit, None
        for no single one, and what undoes it; one of a job what tells, at a later place of the job,
        what is wrong with how it was done, or None."""
        raise NotImplementedError


def age_of(pid):
    """Seconds since a process began."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stream:
            began = int(stream.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise CannotNow("no such process") from error
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


class Kill(Fault):
    """A signal to one process of a job."""

    def __init__(self, name, pattern, number=signal.SIGKILL, weight=1):
        self.name, self.pattern, self.number, self.weight = name, pattern, number, weight

    def do(self, cluster, job, random):
        if self.number == signal.SIGSTOP and not job.kind.tells_steps:
            raise CannotNow("nobody would notice")
        processes = list(cluster.processes(job.id))
        # A launcher that has yet to write down that it is there takes the job with it, and bellowsd may have
        # moved the job just now.
        if not any(name in job.kind.processes for _, name, _ in processes):
            raise CannotNow("no ranks")
        found = [pid for pid, name, arguments in processes
                 if (name in job.kind.processes if self.pattern is None
                     else name == "bellows" and re.search(self.pattern, arguments))]
        if not found:
            raise CannotNow("no such process")
        victim = random.choice(found)
        if self.number == signal.SIGSTOP and age_of(victim) < SETTLED:
            raise CannotNow("it has just started")
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, self.number)
            # What a program does after its training is for nobody but itself to know.
            if self.number == signal.SIGSTOP and job.place().is_trained():
                os.kill(victim, signal.SIGCONT)
                raise CannotNow("it has taken its last step")


def has_agents_or_launcher(cluster, job):
    return any(name == "bellows" for _, name, _ in cluster.processes(job.id))


class Resize(Fault):
    name = "resize"
    weight = 12

    def do(self, cluster, job, random):
        held = gpus_of(cluster, job)
        wanted = random.choice([n for n in range(1, 9) if n != held])
        check = ResizeCheck(cluster, job)
        try:
            told = json.loads(cluster.exec("bellows", "resize", "--json", "--timeout", "100",
                                           str(job.id), str(wanted), user=job.user, timeout=130))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            if re.search(r"try again|is ending|is over|already stopping|not running", str(error)):
                raise CannotNow(str(error)) from error
            # A slurmctld that was away hears late that a program has finished. Whether it did so
            # rightly shows when the job is over.
            if "no launcher that answers" in str(error) and not has_agents_or_launcher(cluster, job):
                raise CannotNow(str(error)) from error
            raise
        if told["pending"] or told["unchanged"]:
            raise CannotNow(f"from {held}: {told}")
        return functools.partial(check.complaints, told)


class Requeue(Fault):
    name = "scontrol requeue"

    def do(self, cluster, job, random):
        cluster.exec("scontrol", "requeue", str(job.id), user="root")


class Usr1(Fault):
    name = "signal USR1"

    def do(self, cluster, job, random):
        # A batch script that is not bellows run yet would die of it.
        if not any(name in job.kind.processes for _, name, _ in cluster.processes(job.id)):
            raise CannotNow("no ranks")
        cluster.exec("scancel", "--batch", "--signal=USR1", str(job.id), user=job.user)


class LoseNode(Fault):
    """One of a job's nodes goes, by a command of minicluster, and comes back by another."""
    whole_cluster = True
    limit = 240
    lasts = (12, 25)

    def __init__(self, name, take, give_back):
        self.name, self.take, self.give_back = name, take, give_back

    def do(self, cluster, job, random):
        node = random.choice(nodes_of(cluster, job) or [None])
        if node is None:
            raise CannotNow("no nodes")
        cluster.call(self.take, node.lstrip("n"), timeout=CALL_LIMIT)
        return node, lambda: cluster.call(self.give_back, node.lstrip("n"), timeout=CALL_LIMIT)


class StopController(Fault):
    """slurmctld is away for some seconds: training goes on."""
    name = "kill slurmctld"
    whole_cluster = True
    restarts = False
    lasts = (1, 10)
    # Slurm has a job whose end it lost wait for the lifetime of a credential before it starts it again, only
    # to be told that it is over.
    limit = 240

    def prepare(self, cluster):
        """slurmctld writes down some seconds later what it has accepted and what it has started: killed before, it has lost
        new jobs, and starts others twice, for which it drains nodes and holds jobs."""
        times = cluster.exec("squeue", "--noheader", "--format=%V", user="root", timeout=CALL_LIMIT)
        times += cluster.exec("squeue", "--noheader", "--states=R", "--format=%S", user="root", timeout=CALL_LIMIT)
        newest = max((time.mktime(time.strptime(word, "%Y-%m-%dT%H:%M:%S")) for word in times.split()), default=0)
        state = f"{cluster.dir}/spool/ctld/job_state"

        def is_saved():
            # slurmctld removes the file before it links the new one there.
            with contextlib.suppress(FileNotFoundError):
                return os.stat(state).st_mtime > newest + 1
            return False

        try:
            wait(is_saved, 30 * PATIENCE, "save of the newest job or start by slurmctld")
        except RuntimeError as error:
            raise CannotNow(str(error)) from error

    def do(self, cluster, job, random):
        cluster.call("stop-ctld", "--signal", "KILL", timeout=CALL_LIMIT)
        return None, lambda: cluster.call("start-ctld", timeout=CALL_LIMIT)


FAULTS = (
    Resize(),
    Kill("kill a rank", None, weight=2),
    Kill("stop a rank (SIGSTOP)", None, signal.SIGSTOP),
    Kill("kill an agent", r"^\S*bellows agent"),
    Kill("kill the launcher", r"^\S*bellows run"),
    Requeue(),
    Usr1(),
    LoseNode("kill a node", "kill-node", "start-node"),
    LoseNode("cut a node off", "cut-node", "heal-node"),
    StopController(),
)

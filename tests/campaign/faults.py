# SPDX-License-Identifier: Apache-2.0
"""What is done to the jobs of a campaign, each for real."""
import contextlib
import os
import re
import signal
import subprocess

from work import PATIENCE

CALL_LIMIT = 120 * PATIENCE  # seconds, of a command of minicluster

class CannotNow(Exception):
    """The job or the cluster is not in a state in which this fault can be done."""


def field(cluster, job, name):
    out = cluster.exec("scontrol", "--oneliner", "show", "job", str(job.id), user="root")
    found = re.search(rf"\b{name}=(\S+)", out)
    return found[1] if found else ""


def nodes_of(cluster, job):
    nodes = field(cluster, job, "NodeList")
    if not nodes or nodes == "(null)":
        return []
    return cluster.exec("scontrol", "show", "hostnames", nodes, user="root").split()


def gpus_of(cluster, job):
    found = re.search(r"gres/gpu=(\d+)", field(cluster, job, "TRES"))
    return int(found[1]) if found else 0


class Fault:
    """One kind of fault. `restarts`: the ranks start again after it; else they only wait."""
    name = ""
    restarts = True
    whole_cluster = False
    weight = 1
    limit = 120  # seconds until the job must train again
    lasts = (0, 0)  # seconds until it is undone, at least and at most

    def do(self, cluster, job, random):
        """Does it. CannotNow: not now. A fault of the whole cluster returns the node that it hit, None
        for no single one, and what undoes it."""
        raise NotImplementedError


class Kill(Fault):
    """A signal to one process of a job."""

    def __init__(self, name, pattern, number=signal.SIGKILL, weight=1):
        self.name, self.pattern, self.number, self.weight = name, pattern, number, weight

    def do(self, cluster, job, random):
        if self.number == signal.SIGSTOP and not job.kind.tells_steps:
            raise CannotNow("nobody would notice")
        found = [pid for pid, name, arguments in cluster.processes(job.id)
                 if (name in job.kind.processes if self.pattern is None
                     else name == "bellows" and re.search(self.pattern, arguments))]
        if not found:
            raise CannotNow("no such process")
        with contextlib.suppress(ProcessLookupError):
            os.kill(random.choice(found), self.number)


class Resize(Fault):
    name = "resize"
    weight = 12

    def do(self, cluster, job, random):
        held = gpus_of(cluster, job)
        wanted = random.choice([n for n in range(1, 9) if n != held])
        try:
            cluster.exec("bellows", "resize", "--timeout", "100", str(job.id), str(wanted),
                         user=job.user, timeout=130)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            if re.search(r"try again|is ending|is over|already stopping|not running", str(error)):
                raise CannotNow(str(error)) from error
            raise


class Requeue(Fault):
    name = "scontrol requeue"

    def do(self, cluster, job, random):
        cluster.exec("scontrol", "requeue", str(job.id), user="root")


class Usr1(Fault):
    name = "signal USR1"

    def do(self, cluster, job, random):
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

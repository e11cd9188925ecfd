# SPDX-License-Identifier: Apache-2.0
"""What a campaign with bellowsd looks at beside the jobs: their moves, and what bellowsd leaves."""
import contextlib
import json
import re
import signal
import subprocess

from cluster import wait
from faults import CALL_LIMIT, Fault
from work import PATIENCE

MOVES_PER_HOUR = 12  # of one job
POLICY = f"""\
controller: {{addresses: ["ctl:6830"], dwell: 20, restarts_per_hour: {MOVES_PER_HOUR}}}
defaults: {{gpus: {{elastic: auto}}}}
"""
MOVE = "move by bellowsd"  # among the faults of the table
# Slurm's words for a job that waits until somebody releases it.
HELD = re.compile(r"held|deleted", re.IGNORECASE)


def reservations(cluster):
    shown = cluster.exec("scontrol", "--oneliner", "show", "reservations", user="root")
    return re.findall(r"\bReservationName=(bellows-\S+)", shown)


class StopBellowsd(Fault):
    """Training goes on without it; in a plan, if there is one soon."""
    whole_cluster = True
    restarts = False
    limit = 240  # a job may be on its way

    def __init__(self, name, number, lasts, undo):
        self.name, self.number, self.lasts, self.undo = name, number, lasts, undo

    def prepare(self, cluster):
        with contextlib.suppress(RuntimeError):  # then outside one
            wait(lambda: reservations(cluster), 20, "plan")

    def do(self, cluster, job, random):
        cluster.call("stop-bellowsd", "--signal", self.number.name, timeout=CALL_LIMIT)
        return None, lambda: cluster.call(*self.undo, timeout=CALL_LIMIT)


# The reservation of a plan holds for 15 s.
FAULTS = (
    StopBellowsd("kill bellowsd", signal.SIGKILL, (0, 10), ("start-bellowsd",)),
    StopBellowsd("stop bellowsd (SIGSTOP)", signal.SIGSTOP, (5, 25), ("stop-bellowsd", "--signal", "CONT")),
)


def moves(cluster, job):
    """(begin, seconds) of each stop that bellowsd ordered, by the job's history: seconds until its ranks
    started again, None where they did not."""
    told = json.loads(cluster.exec("bellows", "history", "--json", str(job.id), user=job.user))
    found, stopping = [], False
    for event in told["timeline"]:
        if event["state"] == "CHECKPOINTING" and event["cause"].startswith("resize by bellowsd"):
            found.append((event["time"], None))
            stopping = True
        elif stopping and event["state"] == "PROCESSING" and event["cause"].startswith("from "):
            found[-1] = (found[-1][0], event["time"] - found[-1][0])
            stopping = False
    return found


def most_within_an_hour(times):
    times = sorted(times)
    return max((sum(begin <= time < begin + 3600 for time in times) for begin in times), default=0)


class Watch:
    """Of one campaign."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.told = {"plans": 0, "done": 0, "moves": 0, "most_in_an_hour": 0, "limit": MOVES_PER_HOUR}

    def note(self, job):
        """Of a job that is over: its moves, and what is wrong with them."""
        try:
            found = moves(self.cluster, job)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return [], [f"its history can't be read: {error}"]
        most = most_within_an_hour([begin for begin, _ in found])
        self.told["moves"] += len(found)
        self.told["most_in_an_hour"] = max(self.told["most_in_an_hour"], most)
        wrong = [f"bellowsd moved it {most} times within an hour"] if most > MOVES_PER_HOUR else []
        return found, wrong

    def complaints(self):
        """When all jobs are over."""
        self.told.update(self.plans())
        wrong = [f"{line} is left" for line in
                 self.cluster.exec("squeue", "--noheader", "--format=job %i (%r)", user="root").splitlines()]
        try:
            wait(lambda: not reservations(self.cluster), 90 * PATIENCE, "end of the reservations")
        except RuntimeError:
            wrong.append(f"bellowsd left {reservations(self.cluster)}")
        if self.told["moves"] == 0:
            wrong.append("bellowsd moved no job")
        return wrong

    def plans(self):
        """How many were begun, and how many brought all their jobs to run."""
        with open(self.cluster.dir + "/log/bellowsd.log", encoding="utf-8", errors="replace") as stream:
            lines = re.findall(r"^bellowsd: plan (\w+): (.*)$", stream.read(), re.MULTILINE)
        begun = {name for name, text in lines if re.match(r"job \d+ \d+ -> \d+:", text)}
        done = {name for name, text in lines if text.startswith("all sizes run")}
        return {"plans": len(begun), "done": len(done)}

    def held(self):
        """Jobs that nothing but a release would start."""
        shown = self.cluster.exec("squeue", "--noheader", "--format=%i %r", user="root")
        return [line for line in shown.splitlines() if HELD.search(line)]

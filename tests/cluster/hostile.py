#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random and hostile requests to slurmctld, judged by oracle.py. Runs inside a cluster as root:

    hostile.py CLIENT POLICY SEED CALLS [ROUND]

With ROUND only that one. Exit status 1: the judge found something. BELLOWS_FINDINGS=N goes on until
there are N findings. A finding shows the requests that led to it as hostile_client takes them.
"""
import grp
import os
import pwd
import random
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))

import hostile_requests  # pylint: disable=wrong-import-position
from oracle import Judge, Policy, Shown, asked  # pylint: disable=wrong-import-position
from slurm_version import slurm_version  # pylint: disable=wrong-import-position

SUBMITS, WAVES, UPDATES = 30, 3, 16
MOST_NODES = 1000  # more than there are
CLASSES = ("submit", "update", "container", "mixed", "zeros", "suffixes")
MOST_FINDINGS = int(os.environ.get("BELLOWS_FINDINGS", 12))


class Client:
    """One hostile_client, as one user."""

    def __init__(self, program, user):
        entry = pwd.getpwnam(user)
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, user=entry.pw_uid, group=entry.pw_gid,
            extra_groups=os.getgrouplist(user, entry.pw_gid))

    def call(self, line):
        """(accepted?, job id or text)"""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        word, _, rest = self.process.stdout.readline().rstrip("\n").partition(" ")
        if word not in ("ok", "no"):
            raise RuntimeError(f"the client is gone after: {line}")
        return word == "ok", int(rest) if word == "ok" else rest


def line_of(verb, fields):
    def plain(text):
        return "".join(c if c.isprintable() and c != "%" else f"%{ord(c):02x}" for c in str(text))
    return "\t".join([verb, *(f"{key}={plain(value)}" for key, value in fields)])


def command(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


class Run:
    """Rounds of submissions, updates and judgements until there were enough calls."""

    def __init__(self, program, policy, seed):
        self.policy = policy
        self.judge = Judge(policy)
        self.seed = seed
        self.clients = {user: Client(program, user) for user in [*policy.people, "root"]}
        self.count = dict.fromkeys(("calls", "admitted", "refused", "updated", "held", "judged",
                                    "legal", "plain"), 0)
        # How many requests of each class were accepted, and refused.
        self.classes = {name: [0, 0] for name in CLASSES}
        self.findings = 0
        self.found = set()
        self.jobs = {}
        self.round = 0
        self.last = ""

    def find(self, what, history):
        self.findings += 1
        print(f"# FOUND in round {self.round} of seed {self.seed}: {what}")
        for line in history:
            print("#   " + line)
        if self.findings >= MOST_FINDINGS:
            raise RuntimeError("enough found")

    def call(self, user, verb, fields, history):
        line = line_of(verb, fields)
        accepted, result = self.clients[user].call(line)
        self.count["calls"] += 1
        if not accepted and result.startswith("1800 "):
            self.find("slurmctld is gone, and this was the last it was asked", [self.last])
            raise RuntimeError("no slurmctld")
        for name in hostile_requests.classes(verb, fields):
            self.classes[name][not accepted] += 1
        self.last = f"{user}: {line}"
        history.append(f"{user}: {line}  => {'ok' if accepted else 'no'} {result}")
        return accepted, result

    def submit(self, request):
        history = []
        accepted, result = self.call(request["user"], request["verb"], request["fields"], history)
        self.count["admitted" if accepted else "refused"] += 1
        if request["legal"]:
            self.count["legal"] += 1
            if not accepted:
                self.find("a legal request was refused", history)
        if accepted and request["verb"] != "willrun":
            request.update(history=history, options=asked(request["fields"]), pristine=True)
            self.count["plain"] += not request["options"]
            self.jobs[result] = request

    def update(self, rng, shown):
        request = self.request_of(shown)
        change = hostile_requests.update(rng, self.policy, self.judge, request, shown)
        accepted, _ = self.call(change["user"], "update", change["fields"], request["history"])
        self.count["updated" if accepted else "held"] += 1
        if change["legal"]:
            self.count["legal"] += 1
            if not accepted:
                self.find("a legal update was refused", request["history"])
        else:
            request["pristine"] = False
        # What comes before the field that it refuses, slurmctld 22.05.8 has changed already.
        request["torn"] = request.get("torn", False) or not accepted
        if accepted and any(key == "qos" and value for key, value in change["fields"]):
            request["named_qos"] = True

    def request_of(self, shown):
        return self.jobs.get(shown.id) or self.jobs.get(int(shown.keys.get("ArrayJobId", 0)))

    def look(self):
        """All jobs that there are, judged."""
        lines = command("scontrol", "--oneliner", "--details", "show", "job").splitlines()
        there = [Shown(line) for line in lines if " JobId=" in " " + line]
        there = [job for job in there if job.keys["JobState"] in ("PENDING", "RUNNING")]
        # 26.05 shows a job of more tasks than its nodes can run with the nodes that these would need.
        if slurm_version() >= (26, 5):
            there = [job for job in there if job.nodes[0] <= MOST_NODES]
        sound = []
        for job in there:
            request = self.request_of(job)
            self.count["judged"] += 1
            wrong = self.judge.job(request, job) if request else ["its request was refused"]
            if job.keys["JobState"] != "PENDING":
                wrong.append("it runs")
            if wrong and job.id not in self.found:
                self.found.add(job.id)
                self.find("; ".join(wrong), (request["history"] if request else []) + [job.short()])
            elif not wrong:
                sound.append(job)
        return there, sound

    def one_round(self):
        rng = random.Random(f"{self.seed}:{self.round}")
        self.jobs = {}
        for _ in range(SUBMITS):
            self.submit(hostile_requests.submission(rng, self.policy))
        there, sound = self.look()
        for _ in range(WAVES):
            for shown in rng.sample(sound, min(UPDATES, len(sound))):
                self.update(rng, shown)
            there, sound = self.look()
        if there:
            subprocess.run(["scancel", *(str(job.id) for job in there)], check=False, timeout=60,
                           capture_output=True)

    def deadly(self):
        for fields in hostile_requests.DEADLY:
            history = []
            for verb in ("willrun", "alloc", "submit"):
                accepted, job = self.call("alice", verb, [("account", "speech"), *fields], history)
            self.call("alice", "update", [("job_id", job if accepted else 1), *fields], history)
        command("scancel", "--user=alice")

    def rounds(self, calls, only):
        try:
            self.round = only or 0
            if only is None:
                self.deadly()
            while self.count["calls"] < calls:
                self.one_round()
                self.round += 1
                if only is not None:
                    break
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f"# {error}")
            self.findings += 1


def people():
    """The users of the cluster with their effective group, as Slurm sees a job of theirs."""
    result = {}
    for user in ("alice", "bob", "carol"):
        result[user] = {"user": user, "groups": [grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name]}
    return result


def parents():
    table = command("sacctmgr", "--noheader", "--parsable2", "show", "associations",
                    "format=Account,User,ParentName")
    rows = (line.split("|") for line in table.splitlines())
    return {account: parent for account, user, parent in rows if not user and parent}


def main():
    program, path, seed, calls = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    only = int(sys.argv[5]) if len(sys.argv) > 5 else None
    run = Run(program, Policy(path, parents(), people(), "main"), seed)
    began = time.monotonic()
    run.rounds(calls, only)
    if only is None and min(run.count[name] for name in
                            ("admitted", "refused", "updated", "held", "legal")) < calls // 20:
        print("# too few of a kind to prove anything")
        run.findings += 1
    for name, (accepted, refused) in run.classes.items():
        print(f"# {name}: {accepted} accepted, {refused} refused")
        if only is None and min(accepted, refused) < calls // 100:
            print(f"# that is too few of {name} to prove anything")
            run.findings += 1
    print(f"# seed {seed}: {run.count['calls']} calls in {time.monotonic() - began:.0f} s: " +
          ", ".join(f"{number} {name}" for name, number in run.count.items() if name != "calls") +
          f", {run.findings} findings")
    return 1 if run.findings else 0


if __name__ == "__main__":
    sys.exit(main())

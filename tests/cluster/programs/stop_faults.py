#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of every party at every message of the stop protocol, without a cluster: bellows run, its agents
and four ranks on two nodes that srun_relay.py and slurm_stand_in.c make up. And answers of slurmctld that
are lost.

Usage: stop_faults.py BUILD SOME|ALL [CASE]

Prints "pass NAME" or "fail NAME WHY" for each; 1 when one failed. A case is good when the job goes on by itself within the
time limit, from a step that is not older than what was committed before; that it is of one piece is for
the program to say, which compares each number that it reads back.
"""
import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1])
LIMIT = 60 * int(os.environ.get("BELLOWS_PATIENCE", "1"))
MESSAGES = ["gate", "gated", "stop", "stop_set", "shard", "commit", "committed", "committed_to_agents"]
TARGETS = ["rank", "agent", "other", "launcher"]


class Lost(Exception):
    pass


def pids_with(text):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as stream:
                if text.encode() in stream.read().split(b"\0"):
                    yield int(pid)
        except OSError:
            pass


class Job:
    """One job, and of Slurm what a launcher needs of it."""

    def __init__(self, directory, steps):
        self.dir = directory
        self.steps = steps
        self.process = None
        os.makedirs(directory + "/bin")
        os.makedirs(directory + "/run", 0o700)
        os.symlink(HERE + "/srun_relay.py", directory + "/bin/srun")
        self.write("job", "RUNNING 0 4\n")
        self.start()

    def write(self, name, text):
        with open(f"{self.dir}/{name}.new", "w", encoding="utf-8") as stream:
            stream.write(text)
        os.rename(f"{self.dir}/{name}.new", f"{self.dir}/{name}")

    def read(self, name):
        try:
            with open(f"{self.dir}/{name}", encoding="utf-8") as stream:
                return stream.read()
        except FileNotFoundError:
            return ""

    def start(self):
        environ = dict(os.environ, PATH=self.dir + "/bin:" + os.environ["PATH"], SLURM_JOB_ID="7",
                       BELLOWS_RUN_DIR=self.dir + "/run", SLURM_STAND_IN=self.dir,
                       LD_PRELOAD=BUILD + "/tests/cluster/programs/.libs/slurm_stand_in.so")
        command = [BUILD + "/launcher/bellows", "run", "--kind=plain", "--checkpoint-dir", self.dir + "/ckpt", "--",
                   BUILD + "/tests/cluster/programs/counter", "--steps", str(self.steps), "--sleep-us", "5000",
                   "--save-every", "60", "--log", self.dir + "/log.counter"]
        with open(self.dir + "/out", "a", encoding="utf-8") as out:
            self.process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, start_new_session=True)

    def kill_all(self):
        for _ in range(50):
            left = list(pids_with("SLURM_STAND_IN=" + self.dir))
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            if self.process:
                self.process.poll()
            if not left:
                return
            time.sleep(0.02)

    def act_as_slurm(self):
        """A batch script that has ended: what it left is killed, and the job runs again if it may."""
        if self.process.poll() is None:
            return
        rescued = os.path.exists(self.dir + "/run/launcher.active")
        self.kill_all()
        state, restarts, gpus = self.read("job").split()
        if state == "HELD":
            return
        if state == "TIMEOUT":
            raise Lost("the launcher left the job to end at its time limit")
        if state == "RUNNING" and not rescued:
            raise Lost(f"the launcher ended with {self.process.returncode} and left the job to end")
        if state == "RUNNING":
            restarts = str(int(restarts) + 1)
        self.write("job", f"RUNNING {restarts} {gpus}\n")
        self.start()

    def lines(self, word):
        found = []
        for line in self.read("log.counter").splitlines():
            if line.startswith(word + " "):
                found.append({k: v for k, _, v in (one.partition("=") for one in line.split()[1:])})
        return found

    def committed(self):
        try:
            return int(os.readlink(self.dir + "/ckpt/latest").split("step-")[1])
        except FileNotFoundError:
            return 0

    def wait(self, what, happened):
        until = time.monotonic() + LIMIT
        while not happened():
            if time.monotonic() > until:
                raise Lost("no " + what)
            self.act_as_slurm()
            time.sleep(0.02)


class Client:
    """bellows resize and bellows status, as far as the launcher sees them."""

    def __init__(self, job, **command):
        self.job, self.gpus = job, command.get("gpus")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(LIMIT)
        self.socket.connect(job.dir + "/run/run.sock")
        self.socket.sendall(json.dumps(command).encode() + b"\n")

    def answers(self):
        text = b""
        while True:
            try:
                chunk = self.socket.recv(4096)
            except ConnectionError:
                return
            if not chunk:
                return
            text += chunk
            *lines, text = text.split(b"\n")
            yield from (json.loads(line) for line in lines)

    def requeue(self):
        state, restarts, _ = self.job.read("job").split()
        if state == "RUNNING":
            self.job.write("job", f"PENDING {int(restarts) + 1} {self.gpus}\n")
            os.kill(self.job.process.pid, signal.SIGTERM)


def kill_in(job, target):
    sys.path.insert(0, HERE)
    os.environ.setdefault("FAULT_DIR", job.dir)
    import srun_relay  # pylint: disable=import-outside-toplevel
    if target == "launcher":
        return job.process.kill()
    victims = srun_relay.pids("counter" if target == "rank" else "bellows",
                              "." if target == "rank" else "bellows agent", "SLURM_STAND_IN=" + job.dir)
    with contextlib.suppress(IndexError, ProcessLookupError):  # it has saved and left meanwhile
        os.kill(victims[-1], signal.SIGKILL)


def resize(job, answer, target):
    """Somebody dies when the client has this answer; target client: the client, and nobody helps the job."""
    client = Client(job, cmd="stop", gpus=2)
    for event in (one["event"] for one in client.answers()):
        if event == answer and target == "client":
            client.socket.close()
            return
        if event == answer:
            kill_in(job, target)
            answer = ""
        if event == "committed":
            client.requeue()


def resize_slowly(job):
    """The commit is held up: whoever is told that it is done may requeue at once, and loses nothing."""
    job.write("fault", "commit before nobody\n")
    client = Client(job, cmd="stop", gpus=2)
    for event in client.answers():
        if event["event"] == "committed":
            client.requeue()
            return event["step"]
    raise Lost("no answer that the stop is committed")


def halt(job, case):
    """A launcher that is killed while it halts its job leaves that to the next, which starts no rank. Nothing
    repeats it later, also when the file system had no room to write down that it was done."""
    job.wait("first commit", lambda: job.committed() > 0)
    job.wait("ranks", lambda: next(Client(job, cmd="status").answers())["step"] > job.committed())
    before = job.committed()
    job.write("fault", "gate after launcher\n")
    for event in Client(job, cmd="stop", hold=True).answers():
        raise Lost(f"the launcher was not killed: {event}")
    job.wait("halt", lambda: job.read("job").startswith("HELD"))
    if len(job.lines("start")) != 1:
        raise Lost("ranks were started before the halt")
    job.process.wait(LIMIT)
    told = job.read("ckpt/events.jsonl").splitlines(keepends=True)
    left = [line for line in told if '"HALTED"' not in line]
    if len(left) == len(told):
        raise Lost("the halt is not in the history")
    job.write("ckpt/events.jsonl", "".join(left))
    job.write("job", "RUNNING 2 4\n")
    job.start()
    check(job, before)
    return f"pass {case}: on from step {job.lines('start')[-1]['step']} when it was resumed"


def finish(job, case):
    """A launcher that is killed when its program has finished comes back only to say so."""
    job.write("fault", case + "\n")
    until = time.monotonic() + LIMIT
    while job.process.poll() != 0:
        if time.monotonic() > until:
            raise Lost("no end")
        job.act_as_slurm()
        time.sleep(0.02)
    if not os.path.exists(job.dir + "/fault.done"):
        raise Lost("nobody was killed")
    if len(job.lines("start")) != 1:
        raise Lost("a finished program was trained again")
    return f"pass {case}: trained once"


def check(job, before):
    job.wait("second start", lambda: len(job.lines("start")) >= 2)
    job.wait("commit after it", lambda: job.committed() > int(job.lines("start")[-1]["step"]))
    for start in job.lines("start")[1:]:
        if int(start["step"]) < before:
            raise Lost(f"back to {start['step']}, though {before} was committed")
        if start["world"] not in ("4", "2"):
            raise Lost(f"{start['world']} ranks")
    if "is not what it was" in job.read("out"):
        raise Lost("a checkpoint is a mixture")
    if "too soon" in job.read("log"):
        raise Lost("the new start time would lose the job")


def hurt(job, case):
    """One case from its fault to its end; what was committed before."""
    message, when, target = case.split()
    job.wait("first commit", lambda: job.committed() > 0)
    before = job.committed()
    # Past that save, so that the next message about one is about that of the stop.
    job.wait("step after it", lambda: next(Client(job, cmd="status").answers())["step"] > before)
    if when == "held":
        before = resize_slowly(job)
    elif when == "answered":
        resize(job, message, target)
    else:
        job.write("fault", case + "\n")
        os.kill(job.process.pid, signal.SIGUSR1)
        job.wait("fault", lambda: os.path.exists(job.dir + "/fault.done"))
        before = job.committed()
        # Told that all is committed, ranks leave: there may be none any more.
        if job.read("victims").endswith(" []\n") and not message.startswith("committed"):
            raise Lost("there was nobody to kill")
    check(job, before)
    return before


def run(case):
    job = None
    directory = tempfile.mkdtemp(prefix="bellows-stop-", dir="/tmp")
    try:
        ends = case.startswith("end ")
        job = Job(directory, 150 if ends else 100000000)
        if ends:
            return finish(job, case)
        if case.startswith("halt "):
            return halt(job, case)
        before = hurt(job, case)
        return f"pass {case}: on from step {job.lines('start')[-1]['step']}, {before} was committed"
    except Exception as error:  # pylint: disable=broad-except
        # Whatever it is, it is this case that failed: the others go on.
        what = str(error) if isinstance(error, Lost) else repr(error)
        last = " | ".join(job.read("out").splitlines()[-6:]) if job else ""
        return f"fail {case}: {what}: {last}"
    finally:
        if job:
            job.kill_all()
        shutil.rmtree(directory, ignore_errors=True)


def cases(which):
    whens = ["before", "after"] if which == "ALL" else ["after"]
    # First, since the launcher waits 10 s for a client that has gone.
    for answer in ["stopping", "committed"]:
        for target in ["launcher", "client"] + (["rank", "agent"] if which == "ALL" else []):
            yield f"{answer} answered {target}"
    for message in MESSAGES:
        for when in whens:
            for target in TARGETS:
                yield f"{message} {when} {target}"
    for call in ["requeue", "update"]:
        for when in ["before", "after"]:
            yield f"{call} {when} launcher"
            yield f"{call} {when} answer"
    yield "requeue before limit"
    yield "requeue slow answer"
    yield "end before launcher"
    yield "halt after launcher"
    yield "commit held client"


def main():
    chosen = sys.argv[3:] or list(cases(sys.argv[2]))
    failed = False
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("BELLOWS_JOBS", "4"))) as pool:
        for line in pool.map(run, chosen):
            print(line, flush=True)
            failed = failed or line.startswith("fail")
    sys.exit(failed)


if __name__ == "__main__":
    main()

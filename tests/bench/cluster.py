# SPDX-License-Identifier: Apache-2.0
"""An embedded cluster for a benchmark, and a Python program that runs inside as a user."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import typing

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MINICLUSTER = os.path.join(TOP, "tests/cluster/minicluster")


def scratch_directory():
    """Not below /tmp: a job with a contract has a /tmp of its own."""
    return tempfile.mkdtemp(prefix="bellows-bench-", dir=os.environ.get("BELLOWS_TESTDIR", "/srv"))


@contextlib.contextmanager
def policy_file(text):
    """The path of a bellows.yaml, for --bellows-conf. bellowsd, which is not root, reads a copy."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as conf:
        os.chmod(conf.name, 0o644)
        conf.write(text)
        conf.flush()
        yield conf.name


class Cluster:
    """Use as a context; it is down at the end, whatever happens. Without a build directory the options
    name a suite."""

    def __init__(self, builddir, *options, slurm_conf=""):
        self.dir = scratch_directory()
        self.options = [*(["--builddir", builddir] if builddir else []), *options]
        if slurm_conf:
            conf = self.dir + ".conf"
            with open(conf, "w", encoding="utf-8") as stream:
                stream.write(slurm_conf)
            self.options += ["--slurm-conf", conf]

    def __enter__(self):
        try:
            self.call("up", *self.options, timeout=600)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run([MINICLUSTER, "down", "--dir", self.dir], timeout=120, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.dir, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.dir + ".conf")

    def call(self, command, *arguments, timeout):
        """Standard output of a command of minicluster."""
        done = subprocess.run([MINICLUSTER, command, "--dir", self.dir, *arguments], check=False,
                              timeout=timeout, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"minicluster {command}: {done.stdout}{done.stderr}")
        return done.stdout

    def exec(self, *command, user="alice", node=None, env=(), timeout=60):
        """Standard output of a command on the controller or a node."""
        options = ["--user", user]
        if node is not None:
            options += ["--node", str(node)]
        for item in env:
            options += ["--env", item]
        return self.call("exec", *options, "--", *command, timeout=timeout)

    def processes(self, job):
        """(pid, name, arguments) of what runs for a job on any node."""
        wanted = {f"SLURM_CONF={self.dir}/etc/slurm.conf".encode(), f"SLURM_JOB_ID={job}".encode()}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/environ", "rb") as stream:
                    if not wanted <= set(stream.read().split(b"\0")):
                        continue
                with open(f"/proc/{pid}/comm", encoding="utf-8") as stream:
                    name = stream.read().strip()
                with open(f"/proc/{pid}/cmdline", "rb") as stream:
                    arguments = stream.read().replace(b"\0", b" ").decode(errors="replace")
                yield int(pid), name, arguments

    def home(self, user="alice"):
        return f"{self.dir}/shared/home/{user}"

    def command(self, *command, user="alice"):
        """What runs a command inside, for a process that stays there."""
        return [MINICLUSTER, "exec", "--dir", self.dir, "--user", user, "--", *command]

    def timer(self, user="alice"):
        return Timer(self.command("python3", "-u", "-c", TIMER, user=user))

    def reconfigure(self, slurm_conf, **files):
        """Restarts slurmctld with more lines in slurm.conf, and with files of this content beside it."""
        self.call("stop-ctld", timeout=60)
        for name, text in files.items():
            with open(f"{self.dir}/etc/{name}", "w", encoding="utf-8") as stream:
                stream.write(text)
        with open(f"{self.dir}/etc/slurm.conf", "a", encoding="utf-8") as stream:
            stream.write(slurm_conf)
        self.call("start-ctld", timeout=120)


# Entering the cluster takes longer than what is timed, so one process stays inside and takes commands.
TIMER = """
import json, subprocess, sys, time
for line in sys.stdin:
    begin = time.monotonic()
    done = subprocess.run(json.loads(line), capture_output=True, text=True)
    end = time.monotonic()
    print(json.dumps([begin, end, done.returncode, done.stdout, done.stderr]), flush=True)
"""


class Timed(typing.NamedTuple):
    """One command that succeeded. The times are CLOCK_MONOTONIC, which the machine's nodes share."""
    begin: float
    end: float
    out: str
    err: str


class Timer:
    """Times commands inside a cluster."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)

    def __call__(self, *command):
        """Seconds and standard output of a command that succeeds."""
        done = self.timed(*command)
        return done.end - done.begin, done.out

    def timed(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        begin, end, status, out, err = json.loads(self.process.stdout.readline())
        if status != 0:
            raise RuntimeError(f"{' '.join(command)}: status {status}: {err}")
        return Timed(begin, end, out, err)


def wait(condition, seconds, what):
    """The first true value of condition()."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise RuntimeError(f"no {what} within {seconds} s")
        time.sleep(0.05)


def note(text):
    print(f"  {text}", file=sys.stderr, flush=True)

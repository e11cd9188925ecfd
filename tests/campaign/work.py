# SPDX-License-Identifier: Apache-2.0
"""The jobs of a campaign: what is submitted, how far it is, and whether its result is right."""
import dataclasses
import functools
import glob
import os
import re
import shutil
import struct
import subprocess
import sys
import typing

PYTHON = "/usr/bin/python3"  # Debian's own: another one earlier in PATH lacks its packages
HANG_FLOOR = 10  # seconds; the default is made for longer jobs
PATIENCE = int(os.environ.get("BELLOWS_PATIENCE", "1"))


class Place(typing.NamedTuple):
    """Where a training is: its start, the step it went on from, the last step done (-1: none), its
    number of ranks, and how many steps it has in all (0: not known)."""
    attempt: int
    restored: int
    step: int
    ranks: int = 0
    steps: int = 0

    def __bool__(self):
        return self.attempt > 0

    def is_trained(self):
        return 0 < self.steps <= self.step + 1


NOWHERE = Place(0, 0, -1)


def read_ledger(path):
    """(restored, last step, ranks, steps in all) of one rank's file; None while its header is not whole."""
    try:
        with open(path, "rb") as stream:
            header = stream.readline()
            if not header.endswith(b"\n"):
                return None
            restored, ranks, in_epoch, epochs = (
                int(re.search(rb" %s=(\d+)" % name, header)[1])
                for name in (b"restored", b"ranks", b"steps_per_epoch", b"epochs"))
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(len(header), size - 65536))
            lines = stream.read().split(b"\n")[:-1]
    except (FileNotFoundError, TypeError):
        return None
    # The first of them may be the end of a line.
    last = lines[-1].split(b" ", 1)[0] if lines else b""
    return restored, int(last) if last.isdigit() else restored - 1, ranks, in_epoch * epochs


@dataclasses.dataclass
class Job:
    """One job that was submitted."""
    kind: "Training"
    number: int  # in this campaign, from 0
    id: int
    user: str
    tenant: str
    home: str  # a directory of its own
    faults: int = 0

    @property
    def ledger(self):
        return self.home + "/ledger"

    @property
    def name(self):
        return f"{self.kind.name} {self.id} of {self.user}"

    def place(self):
        return self.kind.place(self)

    def samples_again(self, before, now):
        return self.kind.samples_again(self, before, now)

    def told_tenant(self):
        """The tenant that its newest batch script found in its environment."""
        return (re.findall(r"^tenant (\S*)$", self.output(), re.MULTILINE) or [""])[-1]

    def output(self):
        try:
            with open(self.home + "/out", encoding="utf-8", errors="replace") as stream:
                return stream.read()
        except FileNotFoundError:
            return ""


class Training:
    """A kind of job. The subclasses say what it runs and what its result must be."""
    name = ""
    framework = ""
    batch = 64  # samples in a step
    processes = ("",)  # names of the ranks' processes
    tells_steps = True  # so that the launcher can see it hang

    def __init__(self, top, builddir, shared):
        self.top, self.builddir, self.shared = top, builddir, shared
        self.process = None  # of a training that is left alone

    def missing(self):
        """Why it can't run here, or None."""
        return None

    def prepare(self):
        """What is needed once, in the directory that all nodes see."""

    def command(self, home, seed):
        """The rest of the batch script, after `exec bellows run`."""
        raise NotImplementedError

    def environment(self):
        return {}

    def alone(self, *command):
        """What a training prints that nothing happens to."""
        environment = {**os.environ, "BELLOWS_AGENT": self.builddir + "/launcher/bellows",
                       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        with subprocess.Popen(["mpirun", "-n", "1", *command], env=environment, text=True,
                              stdout=subprocess.PIPE) as self.process:
            try:
                out, _ = self.process.communicate(timeout=600 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.end()
                raise
        if self.process.returncode != 0:
            raise RuntimeError(f"{command[0]}, left alone, ended with {self.process.returncode}")
        return out

    def end(self):
        if self.process:
            self.process.terminate()

    def place(self, job):
        """Where its newest start is."""
        try:
            names = os.listdir(job.ledger)
        except FileNotFoundError:
            return NOWHERE
        found = [re.fullmatch(r"ledger-(\d+)-0\.txt", name) for name in names]
        return self.place_in(job, max((int(match[1]) for match in found if match), default=0))

    def place_in(self, job, attempt):
        """Where one of its starts was at last."""
        read = read_ledger(f"{job.ledger}/ledger-{attempt}-0.txt") if attempt else None
        return Place(attempt, *read) if read else NOWHERE

    def stop_step(self, job, attempt):
        """Where one of its starts ended, as the number of steps done; None: not known."""
        return self.place_in(job, attempt).step + 1

    def samples_again(self, job, before, now):
        """What a new start computes for the second time; None: not known."""
        return max(0, self.stop_step(job, before.attempt) - now.restored) * self.batch

    def complaints(self, job, seed):
        """What is wrong with the result of a job that has ended, one sentence each."""
        done = subprocess.run([self.top + "/tests/lib/check-ledger", "--quiet", job.ledger],
                              capture_output=True, text=True, check=False, timeout=600)
        wrong = [] if done.returncode == 0 else [done.stderr.strip()]
        return wrong + self.wrong_result(job, seed)

    def wrong_result(self, job, seed):
        raise NotImplementedError

    def submit(self, cluster, user, tenant, number, seed, gpus):
        home = f"{cluster.home(user)}/job-{number}"
        cluster.exec("mkdir", "-p", home, user=user)
        variables = "".join(f"export {name}='{value}'\n"
                            for name, value in self.environment().items())
        script = f"{self.shared}/script-{number}"
        with open(script, "w", encoding="utf-8") as stream:
            stream.write(f"#!/bin/bash\n{variables}echo \"tenant $BELLOWS_TENANT\"\n"
                         f"exec bellows run --hang-floor={HANG_FLOOR} {self.command(home, seed)}\n")
        os.chmod(script, 0o755)
        out = cluster.exec(
            "sbatch", "--parsable", "--account=" + tenant, "--framework=" + self.framework,
            "--gpus-range=1-8", f"--gpus={gpus}", "--cpus-per-task=1", f"--job-name={self.name}-{number}",
            f"--output={home}/out", "--open-mode=append", script, user=user)
        return Job(self, number, int(out), user, tenant, home)


def missing_mpi(program):
    """Why this MPI program can't run here, or None."""
    # Debian builds 26.05 without it.
    if not glob.glob("/usr/lib/*/slurm*/mpi_pmix.so"):
        return "this Slurm has no mpi/pmix"
    return None if os.access(program, os.X_OK) else f"{program} is not built"


class Digits(Training):
    """C++, MPI and libbellows; at any size it ends with the same bits."""
    name = framework = "digits"
    processes = ("digits",)
    options = ("--epochs", "120", "--hidden", "192")

    @property
    def program(self):
        return self.builddir + "/examples/digits/digits"

    @property
    def data(self):
        return self.shared + "/digits.csv.gz"

    def missing(self):
        return missing_mpi(self.program)

    def prepare(self):
        shutil.copy(self.builddir + "/data/digits.csv.gz", self.data)

    def command(self, home, seed):
        return (f"-- {self.program} --data {self.data} {' '.join(self.options)} --seed {seed} "
                f"--ledger {home}/ledger --weights-out {home}/weights")

    @functools.lru_cache(maxsize=None)
    def weights_alone(self, seed):
        """The bits that the same training has when nothing happens to it."""
        place = f"{self.shared}/alone-{seed}"
        self.alone(self.program, "--data", self.data, *self.options, "--seed", str(seed),
                   "--checkpoint-every", "0", "--checkpoint-dir", place + "-ckpt", "--weights-out",
                   place)
        with open(place, "rb") as stream:
            return stream.read()

    def wrong_result(self, job, seed):
        alone = self.weights_alone(seed)
        try:
            with open(job.home + "/weights", "rb") as stream:
                same = stream.read() == alone
        except FileNotFoundError:
            return ["it wrote no weights"]
        return [] if same else ["its weights are not those of a training that was left alone"]


class PyTorch(Training):
    """DistributedDataParallel over gloo, with the Python package."""
    name = framework = "pytorch"
    processes = ("python3",)

    def missing(self):
        done = subprocess.run([PYTHON, "-c", "import torch.distributed"], check=False,
                              capture_output=True, timeout=120)
        return None if done.returncode == 0 else "there is no PyTorch (python3-torch)"

    def prepare(self):
        shutil.copy(self.builddir + "/data/digits.csv.gz", self.shared)
        for folder in ("examples/pytorch", "python/bellows"):
            shutil.copytree(f"{self.top}/{folder}", f"{self.shared}/{os.path.basename(folder)}",
                            dirs_exist_ok=True)
        subprocess.run(["chmod", "-R", "a+rX", self.shared + "/pytorch", self.shared + "/bellows"],
                       check=True)

    def environment(self):
        return {"PYTHONPATH": self.shared, "PYTHONDONTWRITEBYTECODE": "1", "USE_LIBUV": "0",
                "BELLOWS_LIBRARY": self.builddir + "/checkpoint/.libs/libbellows.so.0"}

    def command(self, home, seed):
        return (f"--kind torch -- {PYTHON} {self.shared}/pytorch/train.py --epochs 100 "
                f"--data {self.shared}/digits.csv.gz --seed {seed} --ledger {home}/ledger")

    def wrong_result(self, job, seed):
        found = re.findall(r"accuracy ([\d.]+) %", job.output())
        if not found:
            return ["it told no accuracy"]
        return [] if float(found[-1]) >= 90 else [f"it reads only {found[-1]} % of the digits"]


class Heat(Training):
    """An MPI program that knows nothing of Bellows: it saves to a file of its own on a signal."""
    name = "heat"
    framework = "plain"
    processes = ("heat",)
    tells_steps = False
    steps = 6000

    @property
    def program(self):
        return self.builddir + "/examples/unmodified/heat"

    def missing(self):
        return missing_mpi(self.program)

    def command(self, home, seed):
        # Bellows can't see this program's progress, so all faults of a run count as being in a row.
        return (f"--kind=mpi --checkpoint-signal=USR1 --max-restarts=100 -- {self.program} {home}/state "
                f"{self.steps} 50 {5000 + seed}")

    # A start tells where it goes on, and the file of the program where it was at its last save.
    def place(self, job):
        begun = re.findall(r"start step (\d+) ranks (\d+)", job.output())
        if not begun:
            return NOWHERE
        try:
            with open(job.home + "/state", "rb") as stream:
                step = struct.unpack("<q", stream.read(8))[0]
        except (FileNotFoundError, struct.error):
            step = 0
        return Place(len(begun), int(begun[-1][0]), step, int(begun[-1][1]))

    def stop_step(self, job, attempt):
        parts = job.output().split("start step ")
        found = re.search(r"stop step (\d+)", parts[attempt]) if 0 < attempt < len(parts) else None
        return int(found[1]) if found else None

    # A rank that is killed tells no step.
    def samples_again(self, job, before, now):
        return None

    def complaints(self, job, seed):
        return self.wrong_result(job, seed)

    @functools.lru_cache(maxsize=None)
    def end_alone(self):
        out = self.alone(self.program, self.shared + "/heat-alone", str(self.steps), str(self.steps),
                         "0")
        return re.findall(r"end step .*", out)[-1].strip()

    def wrong_result(self, job, seed):
        alone = self.end_alone()
        ends = [end.strip() for end in re.findall(r"end step .*", job.output())]
        return [] if ends and ends[-1] == alone else [f"it ended with {ends[-1:]}, not {alone}"]


class Count(Training):
    """libbellows without MPI. Each start holds what it gets back against what was saved."""
    name = "count"
    framework = "plain"
    processes = ("counter",)
    steps = 6000

    @property
    def program(self):
        return self.builddir + "/tests/cluster/programs/counter"

    def missing(self):
        return None if os.access(self.program, os.X_OK) else f"{self.program} is not built"

    def command(self, home, seed):
        return (f"--kind=plain -- {self.program} --log {home}/log --tell {home}/told --steps {self.steps} "
                f"--save-every {50 * seed} --rows 100000 --sleep-us 5000 --work-us 40000")

    @staticmethod
    def log(job):
        """Its starts, each a list of (what, step, ranks), the first of which is the start."""
        try:
            with open(job.home + "/log", encoding="utf-8") as stream:
                lines = re.findall(r"^(start|stop|finish) step=(\d+) world=(\d+) ", stream.read(), re.MULTILINE)
        except FileNotFoundError:
            return []
        starts = []
        for what, step, ranks in lines:
            if what == "start":
                starts.append([])
            starts[-1].append((what, int(step), int(ranks)))
        return starts

    def place(self, job):
        starts = self.log(job)
        if not starts:
            return NOWHERE
        _, restored, ranks = starts[-1][0]
        try:
            with open(job.home + "/told", "rb") as stream:
                done = struct.unpack("<Q", stream.read(8))[0]
        except (FileNotFoundError, struct.error):
            done = 0
        return Place(len(starts), restored, done - 1, ranks, self.steps)

    def stop_step(self, job, attempt):
        starts = self.log(job)
        ends = starts[attempt - 1][1:] if 0 < attempt <= len(starts) else []
        return ends[0][1] if ends else None

    # What is told is of the newest start, so nothing is known of one that was killed.
    def samples_again(self, job, before, now):
        stop = self.stop_step(job, before.attempt)
        return None if stop is None else max(0, stop - now.restored) * self.batch

    def complaints(self, job, seed):
        return self.wrong_result(job, seed)

    def wrong_result(self, job, seed):
        # A fault may come between the last step and the end.
        ends = {step for start in self.log(job) for what, step, _ in start if what == "finish"}
        return [] if ends == {self.steps} else [f"it ended at step {sorted(ends)}, not {self.steps}"]


KINDS = (Digits, PyTorch, Heat, Count)


def usable(top, builddir, shared):
    """The kinds that can run here; says on standard error which can't."""
    kinds = []
    for kind in (make(top, builddir, shared) for make in KINDS):
        why = kind.missing()
        if why:
            print(f"campaign: no {kind.name} jobs: {why}", file=sys.stderr)
        else:
            kind.prepare()
            kinds.append(kind)
    return kinds

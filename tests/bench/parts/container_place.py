# SPDX-License-Identifier: Apache-2.0
"""One node, images of two sizes in two forms, and steps and jobs of a user on it, timed."""
import contextlib
import datetime
import os
import re
import shutil
import subprocess
import typing

import cluster

SIZES_MB = (20, 500)

# So that slurmctld's log says when a node told that nothing of a job is left.
CONF = "MpiDefault=none\nSlurmctldDebug=verbose\nDebugFlags=TraceJobs\n"

POLICY = """version: 1
frameworks:
  plain: {{}}
tenants:
  all:
    gpus: {{min: 1, max: 4}}
    images: ["{}/*"{}]
  bare:
    gpus: {{min: 1, max: 4}}
    accounts: [bare]
default_tenant: all
"""

# What images of whole distributions have; Charliecloud and bubblewrap can't make it.
DIRECTORIES = ("bin", "dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp",
               "usr/bin", "usr/lib", "var/tmp")
STARTED = re.compile(r"^started (\d+\.\d+) (\d+\.\d+) (\d+)$", re.MULTILINE)
PHASE = re.compile(r"^slurmstepd: bellows: container: (.+): (\d+) us$", re.MULTILINE)


def make_tree(path, started, megabytes):
    """Busybox, the program that is timed, and bytes that no compressor makes fewer."""
    for directory in DIRECTORIES:
        os.makedirs(f"{path}/{directory}")
    shutil.copy("/bin/busybox", f"{path}/bin/busybox")
    for name in ("sh", "true"):
        os.symlink("busybox", f"{path}/bin/{name}")
    shutil.copy(started, f"{path}/bin/started")
    for name in ("passwd", "group", "hosts", "resolv.conf", "hostname"):
        with open(f"{path}/etc/{name}", "w", encoding="utf-8"):
            pass
    for i in range(megabytes):
        with open(f"{path}/usr/lib/data{i}", "wb") as stream:
            stream.write(os.urandom(1 << 20))


def make_images(path, started):
    os.chmod(path, 0o755)
    for megabytes in SIZES_MB:
        make_tree(f"{path}/{megabytes}", started, megabytes)
        subprocess.run(["mksquashfs", f"{path}/{megabytes}", f"{path}/{megabytes}.sqsh", "-quiet",
                        "-no-progress", "-all-root", "-noD", "-noF"], check=True, timeout=300,
                       stdout=subprocess.DEVNULL)


class Sample(typing.NamedTuple):
    """One srun: milliseconds to the last task's main() and to srun's end, and what its phases took."""
    to_main_ms: float
    whole_ms: float
    job: int
    ended: float  # by the wall clock
    phases: list  # of (name, microseconds)

    @property
    def own_us(self):
        return sum(microseconds for _, microseconds in self.phases)


def sample_of(done, tasks):
    started = STARTED.findall(done.out)
    if len(started) != tasks:
        raise RuntimeError(f"{len(started)} of {tasks} tasks said when they started: {done.err}")
    return Sample(to_main_ms=(max(float(s[0]) for s in started) - done.begin) * 1000,
                  whole_ms=(done.end - done.begin) * 1000, job=int(started[0][2]),
                  ended=max(float(s[1]) for s in started),
                  phases=[(name, int(us)) for name, us in PHASE.findall(done.err)])


def libdir(builddir):
    return subprocess.run(["make", "-s", "-C", f"{builddir}/spank", "--eval",
                           "show-libdir: ; @echo $(libdir)", "show-libdir"], check=True,
                          capture_output=True, text=True, timeout=60).stdout.strip()


class Place:
    """Use as a context. `registries` are patterns of images besides those that it makes, of root's in `images`
    and of users' elsewhere in `scratch`."""

    def __init__(self, options, registries=(), spank_args=""):
        self.builddir = options.builddir
        self.registries = registries
        self.spank_args = spank_args
        self.scratch = cluster.scratch_directory()
        self.stack = contextlib.ExitStack()
        self.stack.callback(shutil.rmtree, self.scratch, ignore_errors=True)
        self.names = 0

    def __enter__(self):
        with contextlib.ExitStack() as until_up:
            until_up.enter_context(self.stack)
            self._set_up()
            until_up.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def _set_up(self):
        os.chmod(self.scratch, 0o755)
        os.mkdir(f"{self.scratch}/images")
        make_images(f"{self.scratch}/images", f"{self.builddir}/tests/bench/started")
        policy = f"{self.scratch}/bellows.yaml"
        with open(policy, "w", encoding="utf-8") as stream:
            stream.write(POLICY.format(self.scratch, "".join(f', "{name}"' for name in self.registries)))
        self.cluster = self.stack.enter_context(cluster.Cluster(
            self.builddir, "--nodes=1", "--gpus=4", "--bellows-conf", policy,
            "--spank-args", f"image_dirs={self.scratch}/images max_containers=1024 batch_in_container=no {self.spank_args}",
            slurm_conf=CONF))
        self._prepare_node()
        self.timer = self.stack.enter_context(self.cluster.timer())
        self.plain = self._hold()
        self.view = self._hold("--framework=plain", "--gpus=1")
        self.boxed = None

    def _prepare_node(self):
        """What an installed node has: libbellows in its place, and FUSE for Charliecloud."""
        place = libdir(self.builddir)
        self.cluster.exec("sh", "-ec", """
            [ -e /dev/fuse ] || mknod -m 666 /dev/fuse c 10 229
            [ ! -e "$1/libbellows.so.0" ] || exit 0
            mkdir /run/libbellows
            cp "$2/checkpoint/.libs/libbellows.so.0" /run/libbellows
            mount -t overlay overlay -o "lowerdir=/run/libbellows:$1" "$1"
            """, "sh", place, self.builddir, user="root", node=1)

    def _hold(self, *options):
        """A job that does nothing but let steps in."""
        job = self.cluster.exec("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap",
                                "sleep 3600").strip()
        cluster.wait(lambda: "RUNNING" in self.cluster.exec("squeue", f"--jobs={job}", "--format=%T"),
                     30, f"start of job {job}")
        return job

    def renew(self):
        """A job of its own for steps in containers, none of which is there yet. Like the plain one it
        has no GPU, so that what Slurm does for a job with GPUs is not counted as a container's."""
        if self.boxed:
            self.cluster.exec("scancel", self.boxed)
            cluster.wait(lambda: self._end_of(self.boxed), 30, f"end of job {self.boxed}")
        self.boxed = self._hold(f"--container-image={self.image(SIZES_MB[0], '.sqsh')}")

    def image(self, megabytes, form=""):
        return f"{self.scratch}/images/{megabytes}{form}"

    def started(self):
        return f"{self.image(SIZES_MB[0])}/bin/started"

    def container(self, megabytes, form="", first=False, verbose=False):
        """Options for a container: the job's, which is there by the second time, or one of its own."""
        options = [f"--container-image={self.image(megabytes, form)}"]
        if first:
            self.names += 1
            options.append(f"--container-name=bench{self.names}")
        if verbose:
            options.append("--container-verbose")
        return options

    def step(self, job, *words, tasks=1):
        """A step of one of the jobs: options of srun and then the command."""
        return sample_of(self.timer.timed("srun", f"--jobid={job}", "--overlap", "--overcommit",
                                          "--nodes=1", f"--ntasks={tasks}", *words), tasks)

    def job(self, *words):
        """A job of its own, and the milliseconds from its task's last instruction to its end."""
        sample = sample_of(self.timer.timed("srun", "--ntasks=1", *words), 1)
        end = cluster.wait(lambda: self._end_of(sample.job), 30, f"end of job {sample.job}")
        return sample, (end - sample.ended) * 1000

    def _end_of(self, job):
        pattern = re.compile(rf"\[(\S+)\] .*job_epilog_complete: enter JobId={job}\b")
        with open(f"{self.cluster.dir}/log/slurmctld.log", encoding="utf-8") as stream:
            for line in stream:
                if match := pattern.match(line):
                    return datetime.datetime.fromisoformat(match[1]).timestamp()
        return None

# SPDX-License-Identifier: Apache-2.0
"""From a requeue to the first instruction of the batch script, and the whole of a resize: from
`bellows resize` to the end of the first step at the new size.

Resizes with the documented SchedulerParameters, with all of Slurm's defaults, a requeue by the
launcher alone and a stock requeue; then resizes with other jobs waiting, and with the releases of
Slurm that other Debian releases have. What mostly waits runs side by side with the rest.
"""
import concurrent.futures
import os
import random
import re
import statistics
import subprocess
import sys
import time
import typing

import cluster
import rows
import slurm_log

GOAL_S = 2.5
STEP_GOAL_S = 4
RESIZES = 24
DEFAULTS = 20
ALONE = 10
STOCK = 5
CROWDED = 6
QUEUE = 100

RELEASES = (("trixie", "24_11"), ("forky", "26_05"))

DEFAULT_PARAMETERS = "SchedulerParameters=batch_sched_delay=3,sched_min_interval=2\n"

# With equal priorities Slurm takes the oldest job id first, and no resized job would ever lose its
# place: sites whose priorities grow with age are the ones that matter.
AGING = """PriorityType=priority/multifactor
PriorityWeightAge=100000
PriorityMaxAge=1-0
"""

POLICY = """version: 1
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks:
  plain: {{}}
tenants:
  all:
    gpus: {{min: 1, max: 8}}
default_tenant: all
resize_site_factor: {}
"""

STEPPED = re.compile(r"stepped (\d+\.\d+)\n")

SCRIPT = """#!/bin/bash
echo "$EPOCHREALTIME" >> "starts-$SLURM_JOB_ID"
{command}
"""


class Job:
    """One batch job that writes down when its script starts, which it `waits` for."""

    def __init__(self, place, command, *options, waits=True):
        self.place = place
        self.done = 0
        path = f"{place.dir}/shared/job.sh"
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(SCRIPT.format(command=command))
        os.chmod(path, 0o755)
        self.id = place.exec("sbatch", "--parsable", "--output=/dev/null", *options, path).strip()
        self.starts_path = f"{place.home()}/starts-{self.id}"
        if waits:
            self.wait_start(0, 60)

    def starts(self):
        try:
            with open(self.starts_path, encoding="utf-8") as stream:
                return [float(line) for line in stream.read().split("\n")[:-1]]
        except FileNotFoundError:
            return []

    def steps(self):
        """When each rank of each attempt had done its first step, by time.monotonic()."""
        try:
            with open(f"{self.place.home()}/firsts-{self.id}", encoding="utf-8") as stream:
                return [float(moment) for moment in STEPPED.findall(stream.read())]
        except FileNotFoundError:
            return []

    def wait_start(self, index, seconds):
        """When the script was started for this time, counted from 0."""
        cluster.wait(lambda: len(self.starts()) > index, seconds, f"start {index} of job {self.id}")
        return self.starts()[index]

    def logged(self, log, words):
        """When a daemon logged a line that begins with these words: to the millisecond."""
        return slurm_log.logged(f"{self.place.dir}/log/{log}.log", f"^{words}")

    def requeues(self):
        """When slurmctld had the job's nodes back and requeued it."""
        return self.logged("slurmctld", rf"Requeuing JobId={self.id}\b")

    def sizes(self):
        """When slurmctld was told of a new size: right after it was asked for the requeue."""
        return self.logged("slurmctld",
                           rf"_update_job: setting num_tasks to \d+ for JobId={self.id}\b")

    def launches(self):
        """When a slurmd took the batch script."""
        return self.logged("slurmd-*", rf"Launching batch (job |JobId=){self.id}\b")

    def cycle(self, trigger, limit):
        """Seconds from the requeue that trigger() causes to the script's first instruction."""
        index = len(self.starts())
        trigger()
        start = self.wait_start(index, limit)
        return start - self.requeues()[index - 1]

    def wait_training(self):
        """Until the launcher has started the ranks of the newest attempt."""
        events = f"{self.place.dir}/shared/checkpoints/alice/{self.id}/events.jsonl"
        restart = f'"restart":{len(self.starts()) - 1},'

        def training():
            with open(events, encoding="utf-8") as stream:
                return any(restart in line.replace(" ", "") and '"PROCESSING"' in line
                           for line in stream)
        cluster.wait(lambda: os.path.exists(events) and training(), 60, "training")
        # Start times are whole seconds. A loop that always comes back in the same part of a second
        # would measure that part alone.
        time.sleep(random.uniform(0, 1))


def bellows_job(place, pace, kind="mpi"):
    return Job(place, f"exec bellows run --kind={kind} -- {pace} --log firsts-$SLURM_JOB_ID", "--framework=plain",
               "--gpus-range=1-8", "--gpus=2")


def own_pace(options):
    return f"{options.builddir}/tests/bench/pace"


def resize(job, size):
    """When the command was called that succeeded. The launcher refuses, and changes nothing, while
    the ranks start."""
    with job.place.timer() as timer:
        def accepted():
            try:
                return timer.timed("bellows", "resize", "--timeout=300", job.id, str(size)).begin
            except RuntimeError as error:
                if "the launcher refuses" not in str(error):
                    raise
                return None
        return cluster.wait(accepted, 30, "launcher that agrees")


class Resized(typing.NamedTuple):
    """Seconds of a resize, and those of them after each other."""
    whole: float
    stop: float  # from the command to the request for the requeue
    slurm: float  # to the start of the batch script, as slurmd sees it
    start: float  # to the end of the first step of the last rank
    to_script: float  # from the requeue, once the job has ended, to the script's first instruction


def first_after(begin, moments, what):
    found = next((moment for moment in moments if moment > begin), None)
    if found is None:
        raise RuntimeError(f"{what} is missing")
    return found


def timed_resize(job, size):
    clocks = time.time() - time.monotonic()
    index = len(job.starts())
    called = resize(job, size) + clocks
    script = job.wait_start(index, 120)
    requeue = first_after(called, job.sizes(), f"slurmctld's log of the resize of job {job.id}")
    launch = first_after(requeue, job.launches(), f"a slurmd's log of the start of job {job.id}")

    def done():
        found = [moment + clocks for moment in job.steps() if moment + clocks > script]
        return len(found) >= size and max(found)
    stepped = cluster.wait(done, 60, f"first step on {size} GPUs")
    return Resized(stepped - called, requeue - called, launch - requeue, stepped - launch,
                   script - job.requeues()[index - 1])


def resize_again_and_again(job, count):
    found = []
    for i in range(count):
        job.wait_training()
        found.append(timed_resize(job, (8, 3, 5, 2)[i % 4]))
    return found


def resizes(options, count, slurm_conf=""):
    with cluster.Cluster(options.builddir, slurm_conf=slurm_conf) as place:
        return resize_again_and_again(bellows_job(place, own_pace(options)), options.count(count))


def of_release(options, suite, release):
    """The row of Debian's SUITE, which has a release of Slurm of its own."""
    name = f"requeue.to_script_{release}_s"
    root = os.path.join(os.environ.get("BELLOWS_NEWER_DIR", f"{cluster.TOP}/build/newer"), suite, "root")
    if not os.path.isdir(root):
        return rows.left_out(name, f"there is no root directory of {suite}; tests/newer {suite} --build makes it")
    newer = os.path.join(cluster.TOP, "tests/newer")
    subprocess.run([newer, suite, "--run", "make -s -C build/tests/bench pace"], check=True, stdout=sys.stderr)
    with cluster.Cluster(None, "--slurm", suite) as place:
        job = bellows_job(place, "/root/bellows/build/tests/bench/pace", "plain")
        found = resize_again_and_again(job, options.count(RESIZES))
    return rows.row(name, [one.to_script for one in found], "s", "lower", GOAL_S)


def step_row(name, found, goal=None):
    """The whole of the resizes, with what of it passes while Slurm has the job."""
    whole, stop, slurm, start, _ = (statistics.median(column) for column in zip(*found))
    cluster.note(f"{name}: of {whole:.2f} s from the command to the end of the first step, "
                 f"{stop:.2f} until the requeue, {slurm:.2f} until slurmd starts the batch script, "
                 f"{start:.2f} until the ranks have done a step")
    return rows.row(name, [one.whole for one in found], "s", "lower", goal,
                    baseline=("Slurm's share", slurm))


def alone(options):
    """The launcher requeues by itself, as on a preemption or near the time limit."""
    with cluster.Cluster(options.builddir) as place:
        job = bellows_job(place, own_pace(options))
        seconds = []
        for _ in range(options.count(ALONE)):
            job.wait_training()
            seconds.append(job.cycle(
                lambda: place.exec("scancel", "--batch", "--signal=USR1", job.id), 120))
        return seconds


def stock(options):
    """scontrol requeue, without Bellows."""
    with cluster.Cluster(options.builddir, "--no-plugins") as place:
        jobs = [Job(place, "exec sleep 1000", "--gpus=1", "--requeue", "--open-mode=append")
                for _ in range(options.count(STOCK))]
        with concurrent.futures.ThreadPoolExecutor(STOCK) as pool:
            return list(pool.map(
                lambda job: job.cycle(lambda: place.exec("scontrol", "requeue", job.id), 300), jobs))


def crowded(options, site_factor):
    """Resizes with a hundred jobs waiting: seconds, and how many others started in between."""
    with cluster.policy_file(POLICY.format(site_factor)) as policy:
        with cluster.Cluster(options.builddir, "--bellows-conf", policy, slurm_conf=AGING) as place:
            return crowded_resizes(place, bellows_job(place, own_pace(options)), options.count(CROWDED))


def crowded_resizes(place, job, count):
    waits, overtaken = [], []
    for i in range(count):
        job.wait_training()
        fill(place)
        index = len(job.starts())
        resize(job, (3, 2)[i % 2])
        start = job.wait_start(index, 300)
        requeue = job.requeues()[index - 1]
        waits.append(start - requeue)
        overtaken.append(sum(requeue < other < start for other in other_starts(place)))
    return waits, overtaken


def keep_waiting(place):
    """QUEUE jobs of another user, each for 2 GPUs and 2 seconds."""
    waiting = len(place.exec("squeue", "--noheader", "--user=bob", "--states=PENDING").split("\n")) - 1
    place.exec("sh", "-c", f"""for i in $(seq {max(0, QUEUE - waiting)}); do
      sbatch --quiet --gpus=2 --output=/dev/null --wrap 'date +%s.%N >> ~/others; sleep 2'
    done""", user="bob", timeout=180)


def fill(place):
    """Keeps them waiting until one of them runs."""
    keep_waiting(place)
    cluster.wait(lambda: other_starts(place), 60, "start of another job")


def other_starts(place):
    try:
        with open(f"{place.home('bob')}/others", encoding="utf-8") as stream:
            return [float(line) for line in stream.read().split()]
    except FileNotFoundError:
        return []


def run(options):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        waiting = pool.submit(stock, options)
        cluster.note("resizes with the documented parameters; stock requeues wait beside them")
        documented = resizes(options, RESIZES)
        cluster.note("resizes with Slurm's defaults, and requeues by the launcher alone")
        alone_result = pool.submit(alone, options)
        defaults = resizes(options, DEFAULTS, DEFAULT_PARAMETERS)
        by_itself = alone_result.result()
        cluster.note("resizes with 100 jobs waiting, with and without site_factor")
        factor_result = pool.submit(crowded, options, 1000000)
        plain_waits, plain_overtaken = crowded(options, 0)
        factor_waits, factor_overtaken = factor_result.result()
        baseline = ("stock requeue", statistics.median(waiting.result()))
    cluster.note("resizes with the Slurm of other Debian releases")
    others = [of_release(options, *release) for release in RELEASES]
    share = [float(n > 0) for n in factor_overtaken]
    plain_share = [float(n > 0) for n in plain_overtaken]
    return others + [
        rows.row("requeue.to_script_s", [one.to_script for one in documented], "s", "lower", GOAL_S,
                 baseline),
        rows.row("requeue.to_script_slurm_defaults_s", [one.to_script for one in defaults], "s",
                 "lower", baseline=baseline),
        step_row("requeue.to_step_s", documented, STEP_GOAL_S),
        step_row("requeue.to_step_slurm_defaults_s", defaults),
        rows.row("requeue.to_script_launcher_alone_s", by_itself, "s", "lower", baseline=baseline),
        rows.row("requeue.to_script_crowded_s", factor_waits, "s", "lower",
                 baseline=("without site_factor", statistics.median(plain_waits))),
        rows.row("requeue.overtaken_share", share, "", "lower", figure=statistics.mean,
                 baseline=("without site_factor", statistics.mean(plain_share))),
        rows.row("requeue.overtaken_by", factor_overtaken, "jobs", "lower", figure=statistics.mean,
                 baseline=("without site_factor", statistics.mean(plain_overtaken))),
    ]

# SPDX-License-Identifier: Apache-2.0
"""What isolation costs: a job's own view of a node, and containers, beside Charliecloud and bubblewrap.

Milliseconds from the start of srun to the task's main(), where differences below 10 ms drown in
noise, so also the microseconds that the plugin's phases take in task_init. What it does before, which is
to read the contract, take the job's lease and make the session's keyring, and the end of its watchdog after
them, are in the milliseconds only: view against plain. The images are in the page cache, and nothing of
them is read but the program.
"""
import random
import shutil
import statistics

import cluster
import rows
from container_place import SIZES_MB, Place

ROUNDS = 64
RIVAL_ROUNDS = 192  # more of what is compared with a goal within a few per cent
MANY_ROUNDS = 24
JOBS = 24
BLOCK = 48  # rounds with one job: each container of a squashfs image keeps a loop device until its end
MANY = (8, 64)
SMALL, LARGE = SIZES_MB

# Measured with an image of 3 MB, and with one of 470 MB extracted and through squashfuse, on a
# machine with 2 cores where a bare srun took 53 ms. Nothing is scaled.
PYXIS = {"small": ("pyxis and enroot, 3 MB", 400), "squashfuse": ("pyxis through squashfuse, 470 MB", 539),
         "directory": ("pyxis and enroot, 470 MB", 2163)}
TIMES_FASTER = 5

FIRST_US = 5000
JOINER_US = 1000
TO_CHARLIECLOUD = 1.05
FLAT = 1.1
# Slurm itself takes longer to notice that a job is over. Something that waits, does so for longer.
TEARDOWN_MS = 10

RIVALS = [f"{who}_{form}_{SMALL}mb" for who in ("first", "join", "charliecloud")
          for form in ("squashfs", "directory")]
VIEW_JOB = ("--framework=plain", "--gpus=1")
INSIDE = "/bin/started"


def charliecloud(place, megabytes, form=""):
    return ["ch-run", place.image(megabytes, form), "--", INSIDE]


def bubblewrap(place, megabytes):
    return ["bwrap", "--ro-bind", place.image(megabytes), "/", "--dev", "/dev", "--proc", "/proc",
            "--ro-bind", "/sys", "/sys", "--bind", "/tmp", "/tmp", INSIDE]


def ways(place, verbose=False):
    """Steps by the name of their row: what each needs to run."""
    def plain(*words):
        return lambda tasks=1: place.step(place.plain, *words, tasks=tasks)

    def contained(size, form, first):
        return lambda tasks=1: place.step(place.boxed, *place.container(size, form, first, verbose),
                                          INSIDE, tasks=tasks)

    def pmix(tasks=1):
        return place.step(place.boxed, "--mpi=pmix", *place.container(SMALL, ".sqsh", False, verbose),
                          INSIDE, tasks=tasks)

    shown = ["--container-verbose"] if verbose else []
    found = {"plain": plain(place.started()),
             "view": lambda tasks=1: place.step(place.view, *shown, place.started(), tasks=tasks),
             "join_pmix": pmix}
    for size in SIZES_MB:
        for form, name in ((".sqsh", "squashfs"), ("", "directory")):
            found[f"first_{name}_{size}mb"] = contained(size, form, True)
            found[f"join_{name}_{size}mb"] = contained(size, form, False)
            if shutil.which("ch-run"):
                found[f"charliecloud_{name}_{size}mb"] = plain(*charliecloud(place, size, form))
        if shutil.which("bwrap"):
            found[f"bubblewrap_directory_{size}mb"] = plain(*bubblewrap(place, size))
    return found


def rounds(place, found, count, **more):
    """Samples by name: each once in a round, in an order of the round's own."""
    rng = random.Random(1)
    samples = {name: [] for name in found}
    for i in range(count):
        if i % BLOCK == 0:
            place.renew()
            for way in found.values():  # loads programs, and makes the containers to join
                way(**more)
        for name in rng.sample(list(found), len(found)):
            samples[name].append(found[name](**more))
    return samples


def column(samples, field):
    return {name: [getattr(s, field) for s in taken] for name, taken in samples.items()}


def ratio(over, under):
    return [a / b for a, b in zip(over, under)]


def step_rows(samples):
    to_main = column(samples, "to_main_ms")
    bare = ("plain step", statistics.median(to_main["plain"]))
    goals = {f"first_squashfs_{SMALL}mb": PYXIS["small"], f"first_squashfs_{LARGE}mb": PYXIS["squashfuse"],
             f"first_directory_{LARGE}mb": PYXIS["directory"]}
    result = []
    for name, values in to_main.items():
        pyxis = goals.get(name)
        result.append(rows.row(f"container.{name}_ms", values, "ms", "lower",
                               pyxis[1] / TIMES_FASTER if pyxis else None,
                               pyxis or (bare if name != "plain" else None)))
    for name, values in column(samples, "whole_ms").items():
        if name in ("plain", "view") or name in RIVALS:
            result.append(rows.row(f"container.srun_{name}_ms", values, "ms", "lower"))
    return result + ratio_rows(to_main)


def ratio_rows(to_main):
    result = []

    def against(name, over, under, goal=None):
        if under in to_main:
            result.append(rows.row(f"container.{name}", ratio(to_main[over], to_main[under]), "x",
                                   "lower", goal))
    for size in SIZES_MB:
        for form in ("squashfs", "directory"):
            for kind in ("first", "join"):
                against(f"{kind}_{form}_{size}mb_vs_charliecloud", f"{kind}_{form}_{size}mb",
                        f"charliecloud_{form}_{size}mb", TO_CHARLIECLOUD if size == SMALL else None)
        against(f"first_directory_{size}mb_vs_bubblewrap", f"first_directory_{size}mb",
                f"bubblewrap_directory_{size}mb")
    against("view_vs_plain", "view", "plain")
    for form in ("squashfs", "directory"):
        against(f"flat_{form}", f"first_{form}_{LARGE}mb", f"first_{form}_{SMALL}mb", FLAT)
    return result


def many_rows(samples, tasks):
    """Several tasks at once on two or more cores: to the last one's main()."""
    to_main = column(samples, "to_main_ms")
    bare = ("plain step", statistics.median(to_main["plain"]))
    result = [rows.row(f"container.tasks{tasks}_{name}_ms", values, "ms", "lower",
                       baseline=bare if name != "plain" else None)
              for name, values in to_main.items()]
    rival = f"charliecloud_directory_{SMALL}mb"
    if rival in to_main:
        name = f"first_directory_{SMALL}mb"
        result.append(rows.row(f"container.tasks{tasks}_{name}_vs_charliecloud",
                               ratio(to_main[name], to_main[rival]), "x", "lower", TO_CHARLIECLOUD))
    return result


def jobs(place, count):
    """Jobs of their own, each the first of its job on the node: samples and milliseconds of teardown."""
    def contained(size, form):
        return lambda: place.job(*VIEW_JOB, *place.container(size, form, verbose=True), INSIDE)

    found = {"plain": lambda: place.job(place.started()),
             "view": lambda: place.job(*VIEW_JOB, "--container-verbose", place.started()),
             f"squashfs_{SMALL}mb": contained(SMALL, ".sqsh"),
             f"squashfs_{LARGE}mb": contained(LARGE, ".sqsh"),
             f"directory_{SMALL}mb": contained(SMALL, "")}
    taken = rounds(place, found, count)
    return ({name: [sample for sample, _ in pairs] for name, pairs in taken.items()},
            {name: [teardown for _, teardown in pairs] for name, pairs in taken.items()})


def job_rows(samples, teardown):
    to_main = column(samples, "to_main_ms")
    bare = ("plain job", statistics.median(to_main["plain"]))
    bare_teardown = ("plain job", statistics.median(teardown["plain"]))
    result = []
    for name in samples:
        other = name != "plain"
        result.append(rows.row(f"container.job_{name}_ms", to_main[name], "ms", "lower",
                               baseline=bare if other else None))
        result.append(rows.row(f"container.teardown_{name}_ms", teardown[name], "ms", "lower",
                               baseline=bare_teardown if other else None))
    added = [b - a for a, b in zip(teardown["plain"], teardown[f"squashfs_{SMALL}mb"])]
    return result + [rows.row("container.teardown_added_ms", added, "ms", "lower", TEARDOWN_MS)]


def own_rows(first, joined):
    """What the plugin's phases take in a task: the first one of a job on the node, and later ones."""
    result = []
    own = column(first, "own_us")
    for name, values in own.items():
        if name != "plain":
            result.append(rows.row(f"container.own_first_{name}_us", values, "us", "lower", FIRST_US))
    result.append(rows.row("container.own_flat",
                           ratio(own[f"squashfs_{LARGE}mb"], own[f"squashfs_{SMALL}mb"]), "x",
                           "lower", FLAT))
    for name, values in column(joined, "own_us").items():
        result.append(rows.row(f"container.own_{name}_us", values, "us", "lower", JOINER_US))
    return result


def tell_phases(title, samples):
    """Medians, by phases in their order; a phase that comes twice is counted together."""
    totals = {}
    for sample in samples:
        sums = {}
        for name, microseconds in sample.phases:
            sums[name] = sums.get(name, 0) + microseconds
        for name, microseconds in sums.items():
            totals.setdefault(name, []).append(microseconds)
    cluster.note(f"{title}, by phase:")
    for name, values in totals.items():
        cluster.note(f"  {name:<40} {statistics.median(values):>6g} us")


def measure(place, options):
    count = options.count(ROUNDS)
    cluster.note("steps in a job that runs")
    found = ways(place)
    samples = rounds(place, found, count)
    rivals = {name: way for name, way in found.items() if name in RIVALS}
    for name, more in rounds(place, rivals, options.count(RIVAL_ROUNDS)).items():
        samples[name] += more
    result = step_rows(samples)
    for tasks in MANY:
        cluster.note(f"steps of {tasks} tasks")
        some = {name: way for name, way in found.items()
                if name in ("plain", "view", f"first_squashfs_{SMALL}mb", f"join_squashfs_{SMALL}mb",
                            f"first_directory_{SMALL}mb", f"charliecloud_directory_{SMALL}mb")}
        result += many_rows(rounds(place, some, options.count(MANY_ROUNDS), tasks=tasks), tasks)
    cluster.note("the plugin's own time: its phases in task_init, not the contract, lease and keyring before")
    shown = ways(place, verbose=True)
    some = {name: shown[name] for name in ("view", f"join_squashfs_{SMALL}mb", "join_pmix")}
    joined = rounds(place, some, count)
    cluster.note("jobs of their own")
    first, teardown = jobs(place, options.count(JOBS))
    tell_phases("The first task of a job, in a container", first[f"squashfs_{SMALL}mb"])
    tell_phases("A joiner", joined[f"join_squashfs_{SMALL}mb"])
    return result + job_rows(first, teardown) + own_rows(first, joined)


def run(options):
    with Place(options) as place:
        return measure(place, options)

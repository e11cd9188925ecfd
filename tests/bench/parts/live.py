# SPDX-License-Identifier: Apache-2.0
"""Twelve jobs of two tenants on 8 nodes of 4 GPUs, with bellowsd and without, beside the simulator's answer
for the same arrivals.

Launchers, checkpoints, resizes and ranks are real; only the arithmetic is waited for. BELLOWS_TRACES names
a folder with the folder models of bellows-simulate(1), whose steps are played ten times as fast.
Takes twenty minutes.
"""
import csv
import os
import statistics

import cluster
import live_play
import rows

FASTER = 10
LIMIT = 1500  # seconds for all jobs
GOAL = 0.1  # of the simulator's mean

# The program, its batch, and its steps: two to eight minutes on 4 GPUs.
PROGRAMS = {
    "bert": (192, 500),
    "cifar10": (4096, 3000),
    "deepspeech2": (640, 460),
    "imagenet": (1600, 2400),
    "yolov3": (256, 640),
}
# When, what, on how many GPUs as submitted, and whose.
JOBS = (
    (0, "cifar10", 4, "vision"),
    (20, "deepspeech2", 4, "speech"),
    (45, "imagenet", 8, "vision"),
    (70, "cifar10", 4, "speech"),
    (100, "yolov3", 2, "vision"),
    (130, "bert", 4, "speech"),
    (160, "cifar10", 4, "vision"),
    (200, "imagenet", 8, "speech"),
    (240, "yolov3", 2, "vision"),
    (280, "deepspeech2", 4, "speech"),
    (320, "cifar10", 4, "vision"),
    (360, "bert", 4, "speech"),
)

# With bellowsd's defaults.
POLICY = """version: 1
controller: {addresses: ["ctl:6830"]}
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks:
  plain: {}
defaults: {gpus: {min: 1, max: 32, elastic: auto}}
tenants:
  vision: {accounts: [vision]}
  speech: {accounts: [speech]}
"""


def faster(source, target):
    """A table of steps that take as much less time."""
    with open(source, encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    with open(target, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, lines[0], lineterminator="\n")
        writer.writeheader()
        for line in lines:
            writer.writerow({**line, "step_time": float(line["step_time"]) / FASTER,
                             "sync_time": float(line["sync_time"]) / FASTER})


def write_models(traces, folder, part):
    """With one batch each, and the `part` of the steps."""
    for program, (batch, steps) in PROGRAMS.items():
        os.makedirs(f"{folder}/{program}")
        for name in ("placements", "scalability"):
            faster(f"{traces}/models/{program}/{name}.csv", f"{folder}/{program}/{name}.csv")
        with open(f"{folder}/{program}/validation-{batch}.csv", "w", encoding="utf-8") as stream:
            steps = round(steps * part)
            stream.write(f"progress,iteration,grad_sqr,grad_var\n{steps},{steps},1,1\n")


def write_workload(path, count):
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("name,time,application,num_replicas,batch_size,tenant\n")
        for number, (at, program, gpus, tenant) in enumerate(JOBS[:count]):
            stream.write(f"{program}-{number},{at},{program},{gpus},{PROGRAMS[program][0]},{tenant}\n")


class Live:
    """The workload, played and simulated."""

    def __init__(self, options, traces, policy):
        self.options, self.traces, self.policy = options, traces, policy
        self.replay = f"{options.builddir}/tests/cluster/programs/replay"

    def prepare(self, place):
        """The workload and the models, where all nodes can read them."""
        folder = f"{place.dir}/shared/live"
        os.mkdir(folder)
        write_models(self.traces, f"{folder}/models", 0.2 if self.options.quick else 1)
        write_workload(f"{folder}/workload.csv", 4 if self.options.quick else len(JOBS))
        return f"{folder}/workload.csv", f"{folder}/models"

    def play(self, with_bellowsd, scheduler):
        """What became of it live, and what the simulator says."""
        with cluster.Cluster(self.options.builddir, "--nodes=8", "--gpus=4", "--elastic",
                             "--bellows-conf", self.policy) as place:
            if not with_bellowsd:
                place.call("stop-bellowsd", timeout=60)
            workload, models = self.prepare(place)
            told = live_play.play(place, self.replay, workload, models, LIMIT)
            if told["wrong"]:
                raise RuntimeError("; ".join(told["wrong"]))
            restart_s = told["restart_s"] or told["start_s"]
            simulated = live_play.simulate(
                self.options.builddir, workload, models, scheduler, "--nodes", 8, "--policy",
                self.policy, "--restart", restart_s, "--start", told["start_s"])
        return told, simulated


def compare(told, simulated, what):
    ratio = told["mean_s"] / simulated["mean_completion_s"]
    cluster.note(f"{what}: mean completion {told['mean_s']:.1f} s, {told['restarts']} restarts, of "
                 f"{told['restart_s'] or 0:.1f} s each, starts of {told['start_s']:.1f} s; simulated "
                 f"{simulated['mean_completion_s']:.1f} s, {simulated['restarts_per_job']:.1f} restarts "
                 f"each; live is {ratio:.3f} times that")
    for job, other in zip(told["jobs"], simulated["each_job"]):
        cluster.note(f"  {job['name']}: {job['completion_s']:.0f} s at {job['sizes']}; simulated "
                     f"{other['completion_s']:.0f} s")
    return ratio


def run(options):
    traces = os.environ.get("BELLOWS_TRACES")
    if not traces:
        return [rows.left_out("elastic.live_mean_s", "BELLOWS_TRACES names no measured programs")]
    with cluster.policy_file(POLICY) as policy:
        live = Live(options, traces, policy)
        cluster.note("twelve jobs with bellowsd")
        told, simulated = live.play(True, "bellowsd")
        ratio = compare(told, simulated, "with bellowsd")
        cluster.note("the same without")
        fixed, simulated_fixed = live.play(False, "fixed-size")
        fixed_ratio = compare(fixed, simulated_fixed, "without")
    return table(told, simulated, fixed, simulated_fixed, (ratio, fixed_ratio))


def completions(told):
    return [job["completion_s"] for job in told["jobs"]]


def table(told, simulated, fixed, simulated_fixed, ratios):
    mean = statistics.mean
    return [
        rows.row("elastic.live_mean_s", completions(told), "s", "lower", figure=mean,
                 baseline=("without bellowsd", fixed["mean_s"]),
                 note=f"mean completion of {len(told['jobs'])} jobs of two tenants on 8 nodes of 4 GPUs, "
                      f"steps {FASTER} times as fast as measured"),
        rows.row("elastic.live_fixed_s", completions(fixed), "s", "lower", figure=mean,
                 baseline=("simulated", simulated_fixed["mean_completion_s"]),
                 note="the same without bellowsd"),
        rows.row("elastic.live_vs_simulated", [abs(ratios[0] - 1)], "", "lower", GOAL,
                 baseline=("without bellowsd", abs(ratios[1] - 1)),
                 note=f"how far the mean is from the simulator's {simulated['mean_completion_s']:.1f} s, "
                      "with starts and restarts as long as they were"),
        rows.row("elastic.live_restarts", [len(job["gaps_s"]) for job in told["jobs"]], "of a job",
                 "lower", figure=mean, baseline=("simulated", simulated["restarts_per_job"])),
        rows.row("elastic.live_restart_s", [gap for job in told["jobs"] for gap in job["gaps_s"]], "s",
                 "lower", note="from the last step at one size to the first at the next"),
    ]

# SPDX-License-Identifier: Apache-2.0
"""From kill -9 of a rank to the first step of training in the next attempt, in place, on two nodes.

Beside it what Slurm alone takes: a loop of the same srun, whose rank is killed in the same way, until
the next srun's last rank has come to its main().
"""
import json
import os
import random
import re
import signal
import statistics
import time

import cluster
import rows

SAMPLES = 24
GOAL_S = 1.5
RANKS = 4
FIRST = re.compile(r"first (\d+\.\d+) main (\d+\.\d+)")

# The words of srun are those of bellows run.
ALONE = """#!/bin/bash
unset "${{!SLURM_NTASKS@}}" "${{!SLURM_GPUS@}}" SLURM_NPROCS SLURM_TASKS_PER_NODE
while :; do
  srun --mpi=pmix --kill-on-bad-exit=1 --input=none --quiet --ntasks={ranks} --nodes=2 {pace} --alone --log {log}
done
"""


class Job:
    """Ranks of pace on both nodes, and the log that they write."""

    def __init__(self, place, name, script):
        self.place = place
        self.log = f"{place.home()}/{name}.firsts"
        path = f"{place.home()}/{name}.sh"
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(script(self.log))
        os.chmod(path, 0o755)
        self.id = place.exec("sbatch", "--parsable", "--framework=plain", "--gpus-range=1-8",
                             f"--gpus={RANKS}", "--nodes=2",
                             f"--output={place.home()}/{name}.out", path).strip()
        self.wait_starts(RANKS)

    def starts(self):
        """(first step, main) of each rank of each attempt, as they came."""
        try:
            with open(self.log, encoding="utf-8") as stream:
                return [(float(first), float(main)) for first, main in FIRST.findall(stream.read())]
        except FileNotFoundError:
            return []

    def wait_starts(self, count):
        cluster.wait(lambda: len(self.starts()) >= count, 60, f"start of {count} ranks")
        return self.starts()

    def ranks(self):
        return [pid for pid, name, _ in self.place.processes(self.id) if name == "pace"]

    def kill_one(self):
        """(when a rank was killed, the (first, main) of the ranks that follow)."""
        before = len(self.starts())
        victim = random.choice(self.ranks())
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        return killed, self.wait_starts(before + RANKS)[before:]


def newest(checkpoints):
    try:
        return os.readlink(f"{checkpoints}/latest")
    except FileNotFoundError:
        return None


def events_after(checkpoints, when):
    with open(f"{checkpoints}/events.jsonl", encoding="utf-8") as stream:
        found = [json.loads(line) for line in stream if '"event"' in line]
    return [event for event in found if event["time"] > when]


def one_restart(job, checkpoints):
    """Seconds to training, and to the launcher's new attempt, to the new srun, to the last main()."""
    known = newest(checkpoints)
    # Failures without progress between them have a pause.
    cluster.wait(lambda: newest(checkpoints) != known, 30, "new checkpoint")
    time.sleep(random.uniform(0, 0.5))
    clocks = time.time() - time.monotonic()
    killed, ranks = job.kill_one()
    events = events_after(checkpoints, killed + clocks)
    deploying = next(e["time"] for e in events if e["event"] == "DEPLOYING")
    started = next(e["time"] for e in events
                   if e["event"] == "PROCESSING" and e["time"] >= deploying)
    training = max(first for first, _ in ranks) - killed
    parts = (deploying - clocks - killed, started - clocks - killed,
             max(main for _, main in ranks) - killed)
    return training, parts


def run(options):
    pace = f"{options.builddir}/tests/bench/pace"
    with cluster.Cluster(options.builddir, "--nodes=2", "--gpus=4") as place:
        job = Job(place, "restart", lambda log: "#!/bin/bash\nexec bellows run -- "
                  f"{pace} --every 20 --log {log}\n")
        alone = Job(place, "alone",
                    lambda log: ALONE.format(ranks=RANKS, pace=pace, log=log))
        checkpoints = f"{place.dir}/shared/checkpoints/alice/{job.id}"
        ours, parts, slurms = [], [], []
        for _ in range(options.count(SAMPLES)):
            seconds, marks = one_restart(job, checkpoints)
            ours.append(seconds)
            parts.append(marks)
            killed, ranks = alone.kill_one()
            slurms.append(max(main for _, main in ranks) - killed)
        place.exec("scancel", job.id, alone.id)
    share = statistics.median(slurms)
    attempt, srun, main = (statistics.median(column) for column in zip(*parts))
    cluster.note(f"of {statistics.median(ours):.2f} s to training: {attempt:.2f} until the old step "
                 f"has ended, {srun - attempt:.2f} for the checkpoint and its agents, "
                 f"{main - srun:.2f} from srun to the last main(); Slurm alone takes {share:.2f}")
    return [rows.row("launch.restart_s", ours, "s", "lower", GOAL_S,
                     baseline=("Slurm's share", share))]

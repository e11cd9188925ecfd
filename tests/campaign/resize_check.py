# SPDX-License-Identifier: Apache-2.0
"""What tests/cluster/launcher/0041-resize.t looks at, for one requeue-resize of a campaign."""
import glob
import os
import re

import slurm_job
from slurm_version import slurm_version

CRED_EXPIRE = 75  # seconds, in the campaign's slurm.conf


class ResizeCheck:
    """Made before the resize; afterwards it knows what is new."""

    def __init__(self, cluster, job):
        self.cluster, self.job = cluster, job
        shown = slurm_job.show(cluster, job)
        self.restarts = int(slurm_job.value(shown, "Restarts") or 0)
        self.nodes = set(slurm_job.nodes_in(cluster, shown))
        self.read = {path: os.path.getsize(path) for path in glob.glob(cluster.dir + "/log/slurm*.log")}

    def new_lines(self, daemon):
        path = f"{self.cluster.dir}/log/{daemon}.log"
        with open(path, encoding="utf-8", errors="replace") as stream:
            stream.seek(self.read.get(path, 0))
            return stream.read().splitlines()

    def complaints(self, told, now):
        """What is wrong after it, one sentence each. `told`: by bellows resize; `now`: where the job is."""
        shown = slurm_job.show(self.cluster, self.job)
        return (self.wrong_size(shown, told, now) + self.wrong_step(told, now) +
                self.wrong_relaunch(shown, told))

    def wrong_size(self, shown, told, now):
        wanted = told["to"]
        sizes = {"GPUs held": slurm_job.gpus_held(self.cluster, shown), "ranks": now.ranks,
                 "GPUs in the report": sum(node["gpus"] for node in told["nodes"])}
        return [f"{size} {what} instead of {wanted}" for what, size in sizes.items() if size != wanted]

    def wrong_step(self, told, now):
        stop = self.job.kind.stop_step(self.job, now.attempt - 1)
        wrong = [] if now.restored == stop else [f"stopped at step {stop}, went on from {now.restored}"]
        if told["step"] not in (None, now.restored):  # None: the program saved by itself
            wrong.append(f"step {told['step']} in the report, went on from {now.restored}")
        return wrong

    def wrong_relaunch(self, shown, told):
        restarts = int(slurm_job.value(shown, "Restarts") or 0) - self.restarts
        wrong = [] if restarts == 1 else [f"{restarts} requeues instead of one"]
        wrong += [line for line in self.new_lines("slurmctld")
                  if re.search(rf"Killing non-startable .*\b{self.job.id}\b", line)]
        # A node forgets an ended credential when its time is over; from 25.11 each run has its own.
        if told["requeue_to_running_s"] > CRED_EXPIRE - 5 or slurm_version() >= (25, 11):
            return wrong
        stayed = self.nodes & set(slurm_job.nodes_in(self.cluster, shown))
        return wrong + [f"slurmd on {node} did not reissue the credential" for node in sorted(stayed)
                        if not any(line.endswith(f"reissued job credential for job {self.job.id}")
                                   for line in self.new_lines("slurmd-" + node))]

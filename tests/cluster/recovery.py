#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How a job came back from a fault: recovery.py LOGS JOB FAULT BACK < what bellows history --json says.

FAULT and BACK, when its ranks began again, are microseconds since 1970. Prints how long that took, with
Slurm's share of it by its daemons' logs in LOGS and the launcher's history; then each cause that the
history tells since the fault, a line for each.

Slurm's are: the time until it sets a node down or is back itself, from the request for a requeue, or
the death of the launcher, until a slurmd launches the batch script, and from the launcher's call of
srun until the last slurmd launches the tasks.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
sys.dont_write_bytecode = True

import slurm_log  # pylint: disable=wrong-import-position


class Window:
    """What happens between a fault and the ranks' new start."""

    def __init__(self, logs, job, begin, end, events):
        self.logs, self.job, self.begin, self.end = logs, job, begin, end
        self.events = [event for event in events
                       if begin <= event["time"] <= end and event["source"] == "launcher"]

    def logged(self, log, words, after=0.0, before=float("inf")):
        moments = slurm_log.logged(f"{self.logs}/{log}.log", words)
        return [moment for moment in moments
                if max(self.begin, after) <= moment <= min(self.end, before)]

    def detection(self):
        for words, what in ((r"^Running as primary controller", "slurmctld is back"),
                            (r"not responding, setting DOWN", "a node is set down")):
            for moment in self.logged("slurmctld", words)[-1:]:
                yield self.begin, moment, what

    def requeue(self):
        launches = self.logged("slurmd-*", rf"^Launching batch job {self.job} ")
        if not launches:
            return
        asked = [event["time"] for event in self.events
                 if event["state"] in ("QUEUED", "RESIZING") and event["attempt"] > 0]
        if asked:
            asked += self.logged("slurmctld", rf"^Requeuing JobId={self.job}\b")
        yield min(asked, default=self.begin), launches[-1], "requeue to batch script"

    def steps(self):
        """Of agents, those that live on cost none, and of ranks, also where it started none."""
        for i, event in enumerate(self.events):
            agents = event["state"] == "DEPLOYING"
            if not agents and not event["cause"].startswith("from "):
                continue
            until = next((later["time"] for later in self.events[i + 1:]
                          if agents or later["state"] == "DEPLOYING"), self.end)
            tasks = self.logged("slurmd-*", rf"^launch task StepId={self.job}\.\d+ ", event["time"], until)
            if tasks or not agents:
                yield event["time"], tasks[-1] if tasks else until, "launch of steps"


def union(spans):
    """The seconds that the spans cover together."""
    covered, reached = 0.0, float("-inf")
    for begin, end, _ in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def main():
    logs, job = sys.argv[1:3]
    begin, end = (int(word) / 1e6 for word in sys.argv[3:5])
    timeline = json.load(sys.stdin)["timeline"]
    window = Window(logs, job, begin, end, timeline)
    spans = [*window.detection(), *window.requeue(), *window.steps()]
    kinds = dict.fromkeys(what for _, _, what in spans)
    text = ", ".join(f"{kind} {union(span for span in spans if span[2] == kind):.2f}" for kind in kinds)
    print(f"{end - begin:.2f} s, of which Slurm {union(spans):.2f} s ({text or 'it has no part in it'})")
    for event in timeline:
        # Slurm's times are whole seconds.
        if event["time"] >= begin - 1:
            print(event["cause"])


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The table of a campaign: fault, count, recovered, time to recover, work lost."""
import collections
import dataclasses
import json
import statistics
import typing

from rows import percentile


class Outcome(typing.NamedTuple):
    """What one fault did to one job."""
    fault: str
    job: int
    recovered: bool
    seconds: float  # from the fault to the next step of training
    samples: typing.Optional[int]  # computed again; None: not known
    wrong: tuple = ()  # why it was not recovered, or what was wrong although it was


class BadRecord(Exception):
    """A file that is no record of a campaign, or of another commit."""


@dataclasses.dataclass
class Report:
    """All that a campaign found, or several."""
    commit: str
    runs: list  # of each: seed, faults_s, nodes, jobs_at_once; in the end wall_s
    resizes_wanted: int = 0
    outcomes: list = dataclasses.field(default_factory=list)
    jobs: list = dataclasses.field(default_factory=list)  # (name, tenant, [complaint])
    complaints: list = dataclasses.field(default_factory=list)  # of no single job

    def ok(self):
        return not self.all_complaints()

    def resizes(self):
        """Requeue-resizes that were done, and those of them that were all right."""
        done = [o for o in self.outcomes if o.fault == "resize"]
        return len(done), sum(o.recovered and not o.wrong for o in done)

    def all_complaints(self):
        found = [f"WRONG: {name}: {text}" for name, _, wrong in self.jobs for text in wrong]
        for outcome in self.outcomes:
            what = "WRONG" if outcome.recovered else "NOT RECOVERED"
            found += [f"{what}: job {outcome.job}, {outcome.fault}: {text}" for text in outcome.wrong]
        if self.resizes()[0] < self.resizes_wanted:
            found.append(f"WRONG: fewer requeue-resizes than the {self.resizes_wanted} wanted")
        return found + [f"WRONG: {text}" for text in self.complaints]

    def rows(self):
        for fault in sorted({o.fault for o in self.outcomes}):
            these = [o for o in self.outcomes if o.fault == fault]
            times = sorted(o.seconds for o in these if o.recovered)
            lost = sorted(o.samples for o in these if o.recovered and o.samples is not None)
            yield {"fault": fault, "count": len(these), "recovered": len(times),
                   "median_s": round(statistics.median(times), 2) if times else None,
                   "p95_s": round(percentile(times, 0.95), 2) if times else None,
                   "lost_median": statistics.median(lost) if lost else None,
                   "lost_most": lost[-1] if lost else None}

    def to_json(self):
        done, verified = self.resizes()
        return json.dumps({
            "commit": self.commit, "runs": self.runs, "ok": self.ok(), "faults": list(self.rows()),
            "requeue_resizes": done, "verified": verified, "resizes_wanted": self.resizes_wanted,
            "jobs": [{"job": name, "tenant": tenant, "complaints": wrong}
                     for name, tenant, wrong in self.jobs],
            "complaints": self.complaints, "outcomes": self.outcomes}, indent=1)

    def to_text(self):
        lines = [f"{'FAULT':<24}{'COUNT':>7}{'RECOVERED':>11}{'MEDIAN s':>10}{'P95 s':>8}"
                 f"{'LOST median':>13}{'most':>7}"]
        for row in self.rows():
            cells = ["-" if value is None else value for value in row.values()]
            lines.append("{:<24}{:>7}{:>11}{:>10}{:>8}{:>13}{:>7}".format(*cells))
        lines.append("(to recover: from the fault to the next step of training; lost: samples "
                     "computed again, where the program tells its steps)")
        right = sum(not wrong for _, _, wrong in self.jobs)
        tenants = collections.Counter(tenant for _, tenant, _ in self.jobs)
        lines.append(f"{right} of {len(self.jobs)} jobs right; of tenants: " +
                     ", ".join(f"{name} {count}" for name, count in sorted(tenants.items())))
        lines.append("{} requeue-resizes, {} verified".format(*self.resizes()))
        lines += ["seed {seed}: {faults_s} s of faults, {wall_s} s in all, {nodes} nodes, "
                  "{jobs_at_once} jobs at a time".format(**run) for run in self.runs]
        lines += ["seed {}: bellowsd began {plans} plans, of which {done} brought all jobs to run; {moves} moves, "
                  "{most_in_an_hour} of one job within an hour at most (limit {limit})".format(
                      run["seed"], **run["bellowsd"]) for run in self.runs if "bellowsd" in run]
        lines.append(f"commit {self.commit}")
        return "\n".join(lines + self.all_complaints())


def read(path):
    """What to_json() wrote."""
    try:
        with open(path, encoding="utf-8") as stream:
            record = json.load(stream)
        outcomes = [Outcome(*one[:-1], tuple(one[-1])) for one in record["outcomes"]]
        jobs = [(job["job"], job["tenant"], job["complaints"]) for job in record["jobs"]]
        return Report(record["commit"], record["runs"], record["resizes_wanted"], outcomes, jobs,
                      record["complaints"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadRecord(f"{path} is no record of a campaign: {error!r}") from error


def summed(paths):
    """One report of several campaigns of one commit."""
    total, *others = (read(path) for path in paths)
    for path, other in zip(paths[1:], others):
        if other.commit != total.commit:
            raise BadRecord(f"{path} is of commit {other.commit}, {paths[0]} of {total.commit}")
        total.resizes_wanted += other.resizes_wanted
        for name in ("runs", "outcomes", "jobs", "complaints"):
            getattr(total, name).extend(getattr(other, name))
    return total

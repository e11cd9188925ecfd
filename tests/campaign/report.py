# SPDX-License-Identifier: Apache-2.0
"""The table of a campaign: fault, count, recovered, time to recover, work lost."""
import dataclasses
import json
import statistics
import typing


class Outcome(typing.NamedTuple):
    """What one fault did to one job."""
    fault: str
    job: int
    recovered: bool
    seconds: float  # from the fault to the next step of training
    samples: int  # computed again
    why: str = ""  # it was not recovered


@dataclasses.dataclass
class Report:
    """All that a campaign found."""
    seed: int
    commit: str
    seconds: float = 0
    outcomes: list = dataclasses.field(default_factory=list)
    jobs: list = dataclasses.field(default_factory=list)  # (name, [complaint])
    complaints: list = dataclasses.field(default_factory=list)  # of no single job

    def ok(self):
        return (all(o.recovered for o in self.outcomes) and not self.complaints and
                not any(wrong for _, wrong in self.jobs))

    def rows(self):
        for fault in sorted({o.fault for o in self.outcomes}):
            these = [o for o in self.outcomes if o.fault == fault]
            times = sorted(o.seconds for o in these if o.recovered)
            lost = sorted(o.samples for o in these if o.recovered)
            yield {"fault": fault, "count": len(these), "recovered": len(times),
                   "median_s": round(statistics.median(times), 2) if times else None,
                   "p95_s": round(times[int(0.95 * (len(times) - 1))], 2) if times else None,
                   "lost_median": statistics.median(lost) if lost else None,
                   "lost_most": lost[-1] if lost else None}

    def to_json(self):
        return json.dumps({"seed": self.seed, "commit": self.commit, "seconds": self.seconds,
                           "faults": list(self.rows()), "ok": self.ok(),
                           "jobs": [{"job": name, "complaints": wrong} for name, wrong in self.jobs],
                           "complaints": self.complaints}, indent=1)

    def to_text(self):
        lines = [f"{'FAULT':<24}{'COUNT':>7}{'RECOVERED':>11}{'MEDIAN s':>10}{'P95 s':>8}"
                 f"{'LOST median':>13}{'most':>7}"]
        for row in self.rows():
            cells = ["-" if value is None else value for value in row.values()]
            lines.append("{:<24}{:>7}{:>11}{:>10}{:>8}{:>13}{:>7}".format(*cells))
        lines.append("(to recover: from the fault to the next step of training; lost: samples "
                     "computed again)")
        right = sum(not wrong for _, wrong in self.jobs)
        lines.append(f"{right} of {len(self.jobs)} jobs right, {self.seconds:.0f} s, "
                     f"seed {self.seed}, commit {self.commit}")
        for name, wrong in self.jobs:
            lines += [f"WRONG: {name}: {text}" for text in wrong]
        lines += [f"NOT RECOVERED: job {o.job}, {o.fault}: {o.why}"
                  for o in self.outcomes if not o.recovered]
        lines += [f"WRONG: {text}" for text in self.complaints]
        return "\n".join(lines)

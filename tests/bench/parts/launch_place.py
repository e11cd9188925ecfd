# SPDX-License-Identifier: Apache-2.0
"""A cluster, and one job on it that starts the same ranks again and again: by turns under
`bellows run`, with agents beside them, and with the very same srun alone.
"""
import os
import re
import typing

import cluster

POLICY = """version: 1
checkpoint_dir: /shared/checkpoints/%u/%j
frameworks:
  plain: {}
tenants:
  all:
    gpus: {min: 1, max: 64}
default_tenant: all
"""
MOST_SECONDS = 200  # for the starts of one number of ranks
FEW = 20  # pairs, of which a median still moves

# Stands before the real srun in PATH: says when the ranks' step begins, and with what words.
SRUN = """#!/bin/bash
if [[ " $* " == *" --job-name=bellows-ranks-"* ]]; then
  printf '%s\\n' "$@" >"$BENCH_DIR/words"
  echo "begin $EPOCHREALTIME" >>"$BENCH_OUT"
fi
exec {srun} "$@"
"""

SCRIPT = """#!/bin/bash
export BENCH_DIR={dir} PATH={dir}:$PATH
unset "${{!SLURM_NTASKS@}}" "${{!SLURM_GPUS@}}" SLURM_NPROCS SLURM_TASKS_PER_NODE
under_run() {{
  bellows run --checkpoint-dir="$BENCH_OUT.ckpt" -- {command}
}}
alone() {{
  local words
  mapfile -t words <"$BENCH_DIR/words"
  srun "${{words[@]}}"
}}
sample() {{ # WAY NUMBER
  export BENCH_OUT=$BENCH_DIR/$1-$2
  echo "whole $EPOCHREALTIME" >"$BENCH_OUT"
  "$1" >>"$BENCH_OUT" 2>&1 || exit 1
}}
sample under_run warm
sample alone warm
for ((i = 0; i < {count} && SECONDS < {seconds}; i++)); do
  if ((i % 2)); then sample under_run $i; sample alone $i; else sample alone $i; sample under_run $i; fi
done
"""


class Sample(typing.NamedTuple):
    """What one start of the ranks wrote. Times are seconds by the wall clock."""
    whole: float  # when `bellows run`, or srun, was called
    begin: float  # when the ranks' srun was
    text: str


def read_sample(path):
    with open(path, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    found = [re.search(rf"{name} (\d+\.\d+)", text) for name in ("whole", "begin")]
    if None in found:
        raise RuntimeError(f"no ranks were started: {text}")
    return Sample(float(found[0][1]), float(found[1][1]), text)


class Place:
    """Use as a context."""

    def __init__(self, options):
        self.policy = cluster.scratch_directory() + ".yaml"
        with open(self.policy, "w", encoding="utf-8") as stream:
            stream.write(POLICY)
        # Nodes claim CPUs for all their ranks; how many the machine has, they share.
        self.cluster = cluster.Cluster(options.builddir, "--nodes=4", "--gpus=16",
                                       "--bellows-conf", self.policy)
        self.jobs = 0

    def __enter__(self):
        self.cluster.__enter__()
        self.srun = self.cluster.exec("sh", "-c", "command -v srun").strip()
        return self

    def __exit__(self, *_):
        self.cluster.__exit__()
        os.unlink(self.policy)
        os.rmdir(self.policy.removesuffix(".yaml"))

    def pairs(self, ranks, command, count):
        """(sample under bellows run, sample alone), `count` times, in alternating order; on a machine
        that is busy with something else as many as can be had in MOST_SECONDS."""
        self.jobs += 1
        folder = f"{self.cluster.home()}/launch{self.jobs}"
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        self._write(f"{folder}/srun", SRUN.format(srun=self.srun))
        script = SCRIPT.format(dir=folder, command=command, count=count, seconds=MOST_SECONDS)
        self._write(f"{folder}/job.sh", script)
        job = self.cluster.exec("sbatch", "--parsable", f"--output={folder}/out",
                                "--framework=plain", f"--gpus-range={ranks}", f"--gpus={ranks}",
                                f"{folder}/job.sh").strip()
        state = cluster.wait(lambda: self._end_of(job), MOST_SECONDS + 120, f"end of job {job}")
        if state != "COMPLETED":
            raise RuntimeError(f"job {job} is {state}: " + self._last_words(folder))
        found = [(read_sample(f"{folder}/under_run-{i}"), read_sample(f"{folder}/alone-{i}"))
                 for i in range(count) if os.path.exists(f"{folder}/alone-{i}")]
        if not found:
            raise RuntimeError(f"not one of {count} pairs of starts of {ranks} ranks within "
                               f"{MOST_SECONDS} s: the machine is too busy")
        if len(found) < min(count, FEW):
            cluster.note(f"{ranks} ranks: only {len(found)} of {count} pairs within {MOST_SECONDS} s")
        return found

    def _write(self, path, text):
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(path, 0o755)

    def _end_of(self, job):
        shown = self.cluster.exec("scontrol", "--oneliner", "show", "job", job)
        state = re.search(r"JobState=(\S+)", shown)[1]
        return None if state in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING") else state

    @staticmethod
    def _last_words(folder):
        newest = max((f"{folder}/{name}" for name in os.listdir(folder)), key=os.path.getmtime)
        with open(newest, encoding="utf-8", errors="replace") as stream:
            return stream.read()[-2000:]

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records how long members of a pool take to start, for the part `pool`.

record_starts.py --builddir DIR [--members N] > tests/bench/pool_starts.txt

The pool is examples/pool/serve.py, which loads PyTorch and a network, on an embedded cluster of four nodes. It grows
from one member to eight and goes back, until there were so many starts. A start is from the keeper's call of sbatch to
the moment at which the member said that it is ready. Needs python3-torch.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

import cluster

PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
NODES = 4
LARGE = 8


def scale(place, members, starts):
    """Waits for the size, and takes down when whose start began and ended."""
    place.exec("bellows", "pool", "scale", "digits", str(members))

    def reached():
        shown = json.loads(place.exec("bellows", "pool", "show", "digits", "--json"))
        for member in shown["members"]:
            if member["ready_ms"]:
                starts[member["job"]] = (member["ready_ms"] - member["submitted_ms"]) / 1000
        return shown["ready"] == members == len(shown["members"])

    cluster.wait(reached, 300, f"pool of {members}")


def record(builddir, members):
    """Seconds, in the order of submission."""
    starts = {}
    with cluster.Cluster(builddir, "--nodes", str(NODES), "--gpus", "1") as place:
        for name in (f"{cluster.TOP}/examples/pool/serve.py", f"{builddir}/data/digits.csv.gz"):
            shutil.copy(name, place.home())
            os.chmod(f"{place.home()}/{os.path.basename(name)}", 0o644)
        script = shutil.copy(f"{cluster.TOP}/examples/pool/serve.sbatch", place.home())
        os.chmod(script, 0o755)
        place.exec("bellows", "pool", "create", "digits", "--max", str(LARGE), "serve.sbatch", env=[f"PYTHON={PYTHON}"])
        cluster.wait(lambda: place.exec("sh", "-c", "bellows pool show digits --json || true"), 60, "keeper")
        while len(starts) < members:
            scale(place, LARGE, starts)
            scale(place, 1, starts)
            print(f"{len(starts)} of {members}", file=sys.stderr)
    return [seconds for _, seconds in sorted(starts.items())][:members]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--builddir", required=True)
    parser.add_argument("--members", type=int, default=100)
    options = parser.parse_args()
    subprocess.run([PYTHON, "-c", "import torch"], check=True, timeout=120)
    starts = record(os.path.abspath(options.builddir), options.members)
    print(f"# Seconds from sbatch to ready of {len(starts)} members of examples/pool/serve.sbatch, in the order of submission,\n"
          f"# on {NODES} embedded nodes of a machine with {os.cpu_count()} processors, by record_starts.py.")
    for seconds in starts:
        print(f"{seconds:.2f}")


main()

# SPDX-License-Identifier: Apache-2.0
"""Checkpoints beside those of other tools: the same bytes, by as many ranks, durable at the end.

A row's value is our time as a multiple of theirs: until the save is durable, and how long it keeps the
program. All others keep it until they are done.
"""
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import rows

PYTHON = "/usr/bin/python3"  # Debian's own: another one in PATH lacks its packages
WORLDS = (1, 2, 4)
# Total megabytes, and how many pairs: fewer of the large ones, or the part would pass its 20 minutes.
SIZES = {64: 20, 256: 20, 1024: 5, 2048: 3}
NAMES = {"torch_save": "torch.save and fsync, s", "torch_dcp": "PyTorch's distributed checkpoint, s",
         "h5py": "h5py and fsync, s", "parallel_hdf5": "parallel HDF5 and fsync, s"}
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Program:
    """The ranks of one tool, waiting to be told to save."""

    def __init__(self, kind, options, scratch, megabytes, world):
        self.directory = tempfile.mkdtemp(prefix=kind + "-", dir=scratch)
        command = [PYTHON, f"{HERE}/peer_rank.py", kind, self.directory, str(megabytes << 20)]
        starts = [command] * world
        if kind == "parallel_hdf5":
            starts = [["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1",
                       "-n", str(world), f"{scratch}/parallel_hdf5", self.directory, str(megabytes << 20)]]
        self.errors = tempfile.TemporaryFile("w+", dir=scratch)  # pylint: disable=consider-using-with
        self.ranks = []
        for rank, start in enumerate(starts):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": f"{os.path.dirname(os.path.dirname(HERE))}/python",
                   "PYTHONDONTWRITEBYTECODE": "1",
                   "BELLOWS_LIBRARY": f"{options.builddir}/checkpoint/.libs/libbellows.so.0",
                   "BELLOWS_AGENT": f"{options.builddir}/launcher/bellows"}
            self.ranks.append(subprocess.Popen(  # pylint: disable=consider-using-with
                start, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True))

    def __enter__(self):
        for rank in self.ranks:
            self.answer(rank)
        return self

    def answer(self, rank):
        line = rank.stdout.readline()
        if line.endswith("\n"):
            return line
        self.errors.seek(0)
        raise RuntimeError(f"a rank has ended: {self.errors.read()[-500:]}")

    def __exit__(self, *_):
        for rank in self.ranks:
            with contextlib.suppress(BrokenPipeError):
                rank.stdin.close()
        for rank in self.ranks:
            try:
                rank.wait(60)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()
        self.errors.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def save(self):
        """The seconds of the slowest rank: what the save kept it, and until it was durable."""
        for rank in self.ranks:
            rank.stdin.write("save\n")
            rank.stdin.flush()
        answers = [json.loads(self.answer(rank)) for rank in self.ranks]
        return {key: max(a[key] for a in answers) for key in ("stall", "durable")}


def absent(kind, scratch):
    """Why a tool can't be measured; makes what it needs."""
    if kind == "parallel_hdf5":
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "hdf5-openmpi"], capture_output=True,
                               text=True, check=False)
        if flags.returncode != 0 or not shutil.which("mpicc"):
            return "the Debian package libhdf5-openmpi-dev is not installed"
        made = subprocess.run(["mpicc", "-O2", "-o", f"{scratch}/parallel_hdf5", f"{HERE}/parallel_hdf5.c",
                               *flags.stdout.split()], capture_output=True, text=True, check=False)
        return f"it can't be compiled: {made.stderr[-200:]}" if made.returncode != 0 else None
    needs = {"torch_save": "import torch", "h5py": "import h5py",
             "torch_dcp": f"import os, sys; sys.path.insert(0, {HERE!r}); "
                          "os.environ.update(RANK='0', WORLD_SIZE='1'); "
                          "import peer_rank; peer_rank.import_sharded()"}
    tried = subprocess.run([PYTHON, "-Bc", needs[kind]], capture_output=True, text=True, check=False)
    lines = tried.stderr.strip().splitlines()
    return lines[-1] if tried.returncode != 0 and lines else None


def run(options, scratch):
    out = []
    for kind in NAMES:
        why = absent(kind, scratch)
        if why:
            out.append(rows.left_out(f"checkpoint.vs_{kind}", why))
            continue
        for megabytes, pairs in SIZES.items():
            for world in WORLDS:
                out += compare(kind, options, scratch, megabytes, world, pairs)
    return out


def compare(kind, options, scratch, megabytes, world, pairs):
    print(f"  beside {kind}: {megabytes} MiB, {world} ranks", file=sys.stderr, flush=True)
    with Program("bellows", options, scratch, megabytes, world) as ours, \
            Program(kind, options, scratch, megabytes, world) as theirs:
        ours.save(), theirs.save()  # the first pays for memory and directories
        measured = [(ours.save(), theirs.save()) for _ in range(options.count(pairs))]
    name = f"{kind}_{megabytes}" + (f"x{world}" if world > 1 else "")
    other = statistics.median(t["durable"] for _, t in measured)
    return [rows.row(f"checkpoint.{prefix}vs_{name}", [o[key] / t[key] for o, t in measured], "x", "lower",
                     baseline=(NAMES[kind], other))
            for prefix, key in (("", "durable"), ("stall_", "stall"))]

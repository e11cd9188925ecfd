#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with bellows.ps on the first GPU and on the CPU, and compares the weights.

Needs a build of Bellows, which BELLOWS_BUILDDIR names (default: build in this checkout), and a PyTorch
with CUDA: start it with the Python that has one. Prints a line for each training, as JSON.

Exit status: 0 they are equal, up to rounding; 1 they are not, or a training failed; 77 it cannot run
here, and says why.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BELLOWS_BUILDDIR") or HERE.parents[1] / "build")
NOT_HERE = 77
STEPS = 100
SECONDS = 60
# What rounding in another order may make of 100 steps.
CLOSE = 1e-3


def missing():
    """Why it cannot run; "" if it can."""
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError:
        return "there is no PyTorch for this Python"
    if not torch.cuda.is_available():
        return "this PyTorch has no CUDA, or no GPU"
    return "" if (BUILD / "paramserver/bellows-ps").exists() else f"there is no bellows-ps in {BUILD}"


@contextlib.contextmanager
def server():
    with tempfile.TemporaryDirectory(prefix="bellows-gpu-") as directory:
        path, log = f"{directory}/ps", pathlib.Path(f"{directory}/log")
        with open(log, "wb") as said:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                [BUILD / "paramserver/bellows-ps", f"--socket={path}", "--threads=2"], stderr=said)
        try:
            deadline = time.monotonic() + SECONDS
            while "is ready" not in log.read_text(encoding="utf-8"):
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"bellows-ps does not start: {log.read_text(encoding='utf-8')}")
                time.sleep(0.01)
            yield path
        finally:
            process.kill()
            process.wait(timeout=SECONDS)


def train(device, change=None, **terms):
    """The weights after some steps from a batch each; `change` is called between backward and step."""
    import torch  # pylint: disable=import-outside-toplevel
    from bellows import ps  # pylint: disable=import-outside-toplevel
    torch.manual_seed(1)
    layers = [torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 512), torch.nn.Tanh(),
              torch.nn.Linear(512, 10)]
    net = torch.nn.Sequential(*layers).to(device)
    generator = torch.Generator().manual_seed(2)
    begin = time.monotonic()
    with server() as path, ps.Optimizer(net.parameters(), lr=0.01, rule="momentum", socket=path, **terms) as optimizer:
        for _ in range(STEPS):
            x = torch.randn(16, 64, generator=generator).to(device)
            y = torch.randint(10, (16,), generator=generator).to(device)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            if change:
                change(net)
            optimizer.step()
        unpinned = optimizer.unpinned
    weights = [p.detach().cpu() for p in net.parameters()]
    return weights, time.monotonic() - begin, unpinned


def clip(net):
    import torch  # pylint: disable=import-outside-toplevel
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)


def main():
    why = missing()
    if why:
        print(why, file=sys.stderr)
        return NOT_HERE
    os.environ["BELLOWS_PS_LIBRARY"] = str(BUILD / "paramserver/.libs/libbellows_ps.so.0")
    sys.path.insert(0, str(HERE.parents[1] / "python"))
    trainings = {"plain": {}, "late": {"early": False}, "early": {"early": True}, "clipped": {"change": clip},
                 "bfloat16": {"gradient_type": "bfloat16"}}
    failed = False
    for name, terms in trainings.items():
        device, seconds, unpinned = train("cuda:0", **terms)
        host, _, _ = train("cpu", **terms)
        most = max(float((a - b).abs().max()) for a, b in zip(device, host))
        print(json.dumps({"training": name, "seconds": round(seconds, 3), "difference": most, "unpinned": unpinned}))
        failed = failed or not most < CLOSE
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

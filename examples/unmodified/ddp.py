#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel as written for torchrun: nothing here knows about Bellows or Slurm.

The program saves to a file every few steps, and on SIGUSR1 it saves and ends. Started again, on any
number of processes, it continues from that file.
"""
import argparse
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

asked = False


def ask(*_):
    global asked
    asked = True


def save(path, step, model, optimizer):
    if dist.get_rank() == 0:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()},
                   path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()


def batch_of(step, size):
    """The same samples of the same function at any number of processes; each takes a part."""
    inputs = torch.rand(size, 8, generator=torch.Generator().manual_seed(step))
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    return inputs[mine], inputs.prod(1, keepdim=True)[mine]


def loss_of(model, step, batch):
    """A rank's share of the mean over the whole batch: shares differ in size."""
    inputs, wanted = batch_of(step, batch)
    return nn.functional.mse_loss(model(inputs), wanted, reduction="sum") * dist.get_world_size() / batch


def main(options):
    signal.signal(signal.SIGUSR1, ask)
    dist.init_process_group(options.backend)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = 0
    if os.path.exists(options.file):
        saved = torch.load(options.file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    parallel = DistributedDataParallel(model)
    if dist.get_rank() == 0:
        print(f"start step {step} ranks {dist.get_world_size()}", flush=True)
    while step < options.steps:
        optimizer.zero_grad()
        loss_of(parallel, step, options.batch).backward()
        optimizer.step()
        time.sleep(options.pause)
        step += 1
        stop = torch.tensor(int(asked))
        dist.all_reduce(stop, dist.ReduceOp.MAX)
        if stop or step % options.save_every == 0:
            save(options.file, step, model, optimizer)
        if stop:
            return
    # Reached also after a start with no step left: a rank was lost after the last step had been saved.
    with torch.no_grad():
        loss = loss_of(parallel, step - 1, options.batch)
    dist.all_reduce(loss)
    if dist.get_rank() == 0:
        print(f"end step {step} loss {loss.item() / dist.get_world_size():.6f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", default="ddp.pt")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=60, help="samples in a step, over all ranks")
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    parser.add_argument("--pause", type=float, default=0, help="seconds in each step, to watch it")
    parser.add_argument("--backend", default="gloo")
    main(parser.parse_args())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on handwritten digits with DistributedDataParallel, at any size.

Ten lines with "# Bellows" are added to a plain loop, and lines with "# changed" are changed, so that
it can stop, save, and continue at another size.
"""
import argparse
import gzip
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import bellows  # Bellows
from ledger import Ledger


def read_digits(path):
    """The rows of digits.csv.gz as (id, 64 pixels from 0 to 1, label); one in five is held out."""
    with gzip.open(path, "rt") as lines:
        rows = [[float(word) for word in line.split(",")] for line in lines]
    table = torch.tensor(rows)
    ids = torch.arange(len(rows))
    whole = TensorDataset(ids, table[:, :64] / 16, table[:, 64].long())
    return TensorDataset(*whole[ids % 5 != 0]), TensorDataset(*whole[ids % 5 == 0])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("BELLOWS_DIGITS", "digits.csv.gz"))
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64, help="samples in a step, over all ranks, "
                        "until the job is ordered to use another number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    parser.add_argument("--checkpoint-dir", help="default: the directory in the job's contract")
    parser.add_argument("--ledger", help="a directory for records of the samples used")
    parser.add_argument("--losses", help="a file for the loss of each step")
    return parser.parse_args()


def main(options):
    ckpt = bellows.Checkpoint(options.checkpoint_dir, on_failed_save="warn")  # Bellows
    dist.init_process_group("gloo", rank=ckpt.rank, world_size=ckpt.world)  # changed
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    data, held_out = read_digits(options.data)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    parallel = DistributedDataParallel(model)
    seed = options.seed
    batch = ckpt.batch(options.batch)  # changed
    sampler = bellows.Sampler(len(data), batch, seed, ckpt.rank, ckpt.world)  # Bellows
    loader = DataLoader(data, batch_sampler=sampler, generator=torch.Generator())  # changed
    ckpt.track(model=parallel, optimizer=optimizer, sampler=sampler, noise=True, rng=True)  # Bellows
    step = ckpt.restore() or 0  # Bellows
    ledger = Ledger(options, ckpt, step, len(sampler), data.tensors[0])
    for epoch in range(sampler.epoch, options.epochs):  # changed
        for step, (ids, pixels, labels) in enumerate(loader, step + 1):  # changed
            # A rank's share of the mean over the whole batch: shares differ in size.
            loss = nn.functional.cross_entropy(parallel(pixels), labels, reduction="sum")  # changed
            loss = loss * ckpt.world / sampler.size_at(step - 1)  # changed
            optimizer.zero_grad()
            loss.backward()
            # The learning rate is chosen for --batch.
            rate = bellows.rates.square_root(batch, options.batch)  # changed
            with bellows.rates.scaled(optimizer, rate):  # changed
                optimizer.step()
            ledger.record(step - 1, epoch, ids, loss)
            stop = ckpt.should_stop(step)  # Bellows
            if stop or step % options.save_every == 0: ckpt.save(step)  # Bellows
            if stop: return ckpt.close()  # Bellows
    right = (model(held_out.tensors[1]).argmax(1) == held_out.tensors[2]).float().mean()
    if ckpt.rank == 0:
        print(f"step {step} ranks {ckpt.world} accuracy {100 * right:.1f} %", flush=True)
    ckpt.save(step)  # Bellows
    ckpt.close()  # Bellows


if __name__ == "__main__":
    main(arguments())
    dist.destroy_process_group()

# SPDX-License-Identifier: Apache-2.0
"""Records what a training did, for tests/lib/check-ledger and for a curve of the loss.

Each rank has a file DIR/ledger-ATTEMPT-RANK.txt: a header with the step that was restored, then a
line "step epoch id id id..." for each step, written once the gradient has been applied.
"""
import os
import re

import torch
import torch.distributed as dist


class Ledger:
    def __init__(self, options, ckpt, restored, steps_per_epoch, ids):
        self.file = self.losses = None
        if options.losses:
            path = options.losses if ckpt.rank == 0 else os.devnull
            self.losses = open(path, "a", buffering=1)
        if not options.ledger:
            return
        os.makedirs(options.ledger, exist_ok=True)
        attempts = [re.match(r"ledger-(\d+)-", name) for name in os.listdir(options.ledger)]
        attempt = torch.tensor(1 + max([int(a[1]) for a in attempts if a], default=0))
        # Rank 0 looks before any rank creates a file, since all ranks wait for its result.
        dist.barrier()
        dist.broadcast(attempt, 0)
        if ckpt.rank == 0:
            with open(os.path.join(options.ledger, "samples.txt"), "w") as samples:
                print(*ids.tolist(), file=samples)
        name = f"ledger-{attempt.item()}-{ckpt.rank}.txt"
        self.file = open(os.path.join(options.ledger, name), "x", buffering=1)
        print("# digits-ledger/1", f"attempt={attempt.item()} rank={ckpt.rank}",
              f"ranks={ckpt.world} restored={restored} steps_per_epoch={steps_per_epoch}",
              f"epochs={options.epochs}", file=self.file)

    def record(self, step, epoch, ids, loss):
        if self.file:
            print(step, epoch, *ids.tolist(), file=self.file)
        if self.losses:
            loss = loss.detach().clone()
            dist.reduce(loss, 0)
            print(step, f"{loss.item() / dist.get_world_size():.9g}", file=self.losses)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Allreduce of PyTorch's gloo in processes of one node: RANK WORLD FILE KIB COUNT. Rank 0 prints the microseconds of
each, one a line."""
import sys
import time

import torch
import torch.distributed as dist

WARM = 8


def main():
    rank, world, path, kib, count = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world)
    data = torch.zeros(kib * 256)
    for i in range(count + WARM):
        begin = time.perf_counter()
        dist.all_reduce(data)
        if rank == 0 and i >= WARM:
            print(f"{(time.perf_counter() - begin) * 1e6:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

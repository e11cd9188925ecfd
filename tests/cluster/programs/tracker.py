#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Python training without training: at step S all that it holds says S. tracker.py LOG

Rank 0 writes a line to LOG for each start. What a restore brings back is held against its step.
"""
import struct
import sys
import time

import bellows

MIB = 1 << 20
ckpt = bellows.Checkpoint()
progress, weights, own = {"step": 0}, bytearray(8 * MIB), bytearray(4 * MIB)
ckpt.track(progress=progress, rng=True)
ckpt.register("weights", weights)
ckpt.register("own", own, sharded=bellows.Shard(0, ckpt.rank * len(own), ckpt.world * len(own)))


def arrays(step):
    return struct.pack("<Q", step) * MIB, struct.pack("<II", step, ckpt.rank) * (MIB // 2)


step = ckpt.restore() or 0
good = step == 0 or (progress["step"], (weights, own)) == (step, arrays(step))
if ckpt.rank == 0:
    with open(sys.argv[1], "a", encoding="ascii") as log:
        print(f"start step={step} world={ckpt.world}", "right" if good else "wrong", file=log)
if not good:
    sys.exit(f"rank {ckpt.rank}: other bytes than those of step {step}")
while True:
    step += 1
    time.sleep(0.005)
    stop = ckpt.should_stop(step)
    if stop or step % 20 == 0:
        progress["step"] = step
        weights[:], own[:] = arrays(step)
        ckpt.save(step)
    if stop:
        sys.exit(ckpt.close())

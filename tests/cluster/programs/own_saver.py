#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that knows nothing of Bellows and saves in its own way: it counts, in rank 0.

Usage: own_saver.py signal|command|none STATE STEPS [STATUS]

signal: on SIGUSR1 it saves and exits, with STATUS (0). command: it saves when STATE.please appears,
and removes that. none: it never saves. STATE holds the count, STATE.log its starts and its end.
"""
import os
import signal
import sys
import time

style, state, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
status = int(sys.argv[4]) if len(sys.argv) > 4 else 0
rank, world = int(os.environ["SLURM_PROCID"]), os.environ["SLURM_NTASKS"]
asked = False


def ask(*_):
    global asked
    asked = True


def note(what, step):
    with open(state + ".log", "a", encoding="utf-8") as log:
        log.write(f"{what} step={step} world={world}\n")


def save(step):
    with open(state + ".new", "w", encoding="utf-8") as new:
        new.write(str(step))
    os.rename(state + ".new", state)


signal.signal(signal.SIGUSR1, ask)
if rank != 0:  # as a rank that waits in a collective
    while not asked and not os.path.exists(state + ".done"):
        time.sleep(0.05)
    sys.exit(0)
count = 0
if style != "none" and os.path.exists(state):
    with open(state, encoding="utf-8") as old:
        count = int(old.read())
note("start", count)
while count < steps:
    if asked:
        save(count)
        note("stop", count)
        sys.exit(status)
    if style == "command" and os.path.exists(state + ".please"):
        save(count)
        note("saved", count)
        os.unlink(state + ".please")
    time.sleep(0.05)
    count += 1
note("finish", count)
open(state + ".done", "w", encoding="utf-8").close()

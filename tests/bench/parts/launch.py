# SPDX-License-Identifier: Apache-2.0
"""What `bellows run` adds to a program's start and to its steps, and how soon it starts one again.

Each file launch_NAME.py beside this one is a piece with a run(options) of its own.
"""
import glob
import importlib
import os

import cluster

HERE = os.path.dirname(os.path.abspath(__file__))


def run(options):
    result = []
    for path in sorted(glob.glob(f"{HERE}/launch_*.py")):
        name = os.path.basename(path).removesuffix(".py")
        cluster.note(name)
        result += importlib.import_module(name).run(options)
    return result

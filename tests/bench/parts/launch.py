# SPDX-License-Identifier: Apache-2.0
"""What `bellows run` adds to a program's start and to its steps, and how soon it starts one again.

The pieces are launch_NAME.py beside this file; launch_place.py is what they share.
"""
import cluster
import launch_ranks
import launch_restart
import launch_steps


def run(options):
    result = []
    for piece in (launch_ranks, launch_restart, launch_steps):
        cluster.note(piece.__name__)
        result += piece.run(options)
    return result

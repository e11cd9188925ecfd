# SPDX-License-Identifier: Apache-2.0
"""Joins a group for a minute, and prints who is in it: coordinate_client.py POOL GROUP NAME"""

import sys

from bellows import pool

name, group, member = sys.argv[1:]
with pool.connect(name) as coordinator:
    coordinator.join(group, member, 60)
    for names in coordinator.watch.within(30)(group):
        print(*names, flush=True)

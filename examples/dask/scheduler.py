# SPDX-License-Identifier: Apache-2.0
"""Dask's scheduler, for the workers in a pool: scheduler.py POOL-DIRECTORY SCHEDULER-FILE"""

import asyncio
import sys

from distributed import Scheduler

from security import of_pool


async def main(directory, file):
    scheduler = Scheduler(port=0, protocol="tls", security=of_pool(directory), scheduler_file=file, dashboard=False)
    async with scheduler:
        await scheduler.finished()


asyncio.run(main(*sys.argv[1:]))

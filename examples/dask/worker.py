# SPDX-License-Identifier: Apache-2.0
"""A Dask worker as a member of a pool: worker.py SCHEDULER-FILE. There are as many as Dask's scheduler wants."""

import asyncio
import os
import sys
import threading

from bellows import pool
from bellows.pool import agent
from distributed import Worker

from security import of_pool


def obey(watch, drain):
    for order in agent.orders(watch):
        if order.drain_s is not None:
            drain()


async def main():
    told, loop = asyncio.Event(), asyncio.get_running_loop()
    security = of_pool(os.environ["BELLOWS_POOL"])
    async with Worker(scheduler_file=sys.argv[1], nthreads=1, protocol="tls", security=security) as worker:
        agent.listen(worker.port)
        drain = lambda: loop.call_soon_threadsafe(told.set)  # noqa: E731
        threading.Thread(target=obey, args=(agent.watch(), drain), daemon=True).start()
        agent.ready()
        while not told.is_set():
            pool.metric("dask_workers", await worker.scheduler.adaptive_target(target_duration="10s"))
            await asyncio.sleep(0.5)
        # Other workers take what it has first.
        await worker.close_gracefully()


asyncio.run(main())

# SPDX-License-Identifier: Apache-2.0
"""Runs functions of one module in the members of a pool: workers.py MODULE serves, as a member.

Pool, below, is for the program that has the work. It is called like multiprocessing.Pool, but its
workers are on all nodes, their number follows the work, and when one is lost another does its part.
So a function may run twice, and has to give the same result.
"""

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor

from bellows import pool


class Workers(pool.ElasticObject):
    def __init__(self, module):
        self._name = module
        self._module = importlib.import_module(module)

    @pool.idempotent
    def apply(self, module, function, arguments):
        # Only what the pool is for: a name from outside could be os.system.
        found = vars(self._module).get(function) if module == self._name else None
        if getattr(found, "__module__", None) != self._name:
            raise ValueError(f"these workers have no function {module}.{function}")
        return found(*arguments)


class Pool:
    """The workers of a pool, like a multiprocessing.Pool. Arguments and results are what
    bellows.pool sends: numbers, text, lists, dicts, arrays of numpy.

    at_once: the most calls that are under way; the policy counts them. seconds: of one call, with its
    wait for a worker."""

    def __init__(self, name, at_once=64, seconds=3600):
        self._stub = pool.connect(name, timeout=seconds)
        self._threads = ThreadPoolExecutor(at_once)

    def apply_async(self, function, arguments=()):
        """A Future."""
        named = function.__module__, function.__qualname__, list(arguments)
        return self._threads.submit(self._stub.apply, *named)

    def imap(self, function, values):
        """Results in the order of the values, as they come."""
        futures = [self.apply_async(function, (value,)) for value in values]
        return (future.result() for future in futures)

    def map(self, function, values):
        return list(self.imap(function, values))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._threads.shutdown(cancel_futures=True)
        pool.close(self._stub)


if __name__ == "__main__":
    # One at a time, and another one waits while an answer is on its way.
    Workers(sys.argv[1]).serve(threads=1, limit=2)

# SPDX-License-Identifier: Apache-2.0
"""A member of the tests' pools. What runs is noted in the file $LEDGER."""

import os
import time

from bellows import pool


class Odd(Exception):
    """No caller has it."""


class Known(Exception):
    """A caller has it."""


class Index(pool.ElasticObject):
    def __init__(self):
        self._ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.wish = int(os.environ.get("WISH", "0"))

    def _note(self, text):
        os.write(self._ledger, f"{text}\n".encode())

    @pool.idempotent
    def echo(self, value, *more, **named):
        return [value, list(more), named] if more or named else value

    def who(self):
        return os.getpid()

    def add(self, name):
        """Once at most for each name."""
        self._note(name)
        # So that members are killed between this and the answer.
        time.sleep(0.002)
        return name

    def call_id(self):
        return pool.current_call().id

    def time_left(self):
        return pool.current_call().time_left()

    def slow(self, seconds, name="slow"):
        self._note(name)
        time.sleep(seconds)
        return os.getpid()

    @pool.idempotent
    def slow_again(self, seconds, name="slow_again"):
        self._note(name)
        time.sleep(seconds)
        return os.getpid()

    @pool.timeout(0.2)
    def patient(self):
        time.sleep(5)

    def fail(self, kind):
        if kind == "key":
            return {}["nothing"]
        if kind == "known":
            raise Known("too far")
        raise Odd("not today")

    def wrong(self):
        return {1, 2}

    def count(self, numbers, pause=0.0):
        for number in range(numbers):
            yield number
            time.sleep(pause)

    @pool.idempotent
    def count_again(self, numbers, pause=0.0):
        self._note("count_again")
        yield from self.count(numbers, pause)

    def break_off(self):
        yield 1
        raise Known("after one")

    def stretch(self):
        self.metric("stretched", 2.5)

    def change_pool_size(self):
        return self.wish

    def on_drain(self, seconds):
        self._note(f"drain-{seconds}")


if __name__ == "__main__":
    limit = int(os.environ.get("LIMIT", "0")) or None
    Index().serve(threads=int(os.environ.get("THREADS", "16")), limit=limit)

# SPDX-License-Identifier: Apache-2.0
"""Named locks with fencing tokens, and groups with leases: coordinate.py serves, as a member of a pool.

Everything is in fields that the pool shares, so any member answers any call. Leases are measured by
the clocks of the members' nodes, which agree by NTP or so; what a lock protects compares tokens, which
grow with each new holder, and so is safe even if they don't.
"""

import time

from bellows import pool


class Coordinator(pool.ElasticObject):
    def __init__(self):
        self._locks = pool.Shared("example-locks")
        self._groups = pool.Shared("example-groups")

    @pool.idempotent
    def acquire(self, name, holder, seconds):
        """The token if the holder has the lock for so many seconds from now, None if another has it.
        Who has it already keeps its token."""

        while True:
            old = self._locks[name]
            lock = old or {"holder": "", "token": 0, "until": 0.0}
            now = time.time()
            free = not lock["holder"] or lock["until"] <= now
            if not free and lock["holder"] != holder:
                # Those who wait only read, and so don't hinder the holder.
                return None
            token = lock["token"] + 1 if free else lock["token"]
            new = {"holder": holder, "token": token, "until": now + seconds}
            if self._locks.compare_and_set(name, old, new):
                return token

    @pool.idempotent
    def release(self, name, token):
        """Gives the lock back, unless somebody else has it since."""

        def freed(lock):
            if not lock or lock["token"] != token:
                return lock
            return {"holder": "", "token": token, "until": 0.0}

        self._locks.update(name, freed)

    @pool.idempotent
    def join(self, group, member, seconds):
        """In the group for so many seconds from now; called again to stay in it."""
        self._groups.update(group, lambda now: {**self._alive(now), member: time.time() + seconds})

    @pool.idempotent
    def leave(self, group, member):
        def left(now):
            return {name: until for name, until in self._alive(now).items() if name != member}

        self._groups.update(group, left)

    @pool.idempotent
    def members(self, group):
        return sorted(self._alive(self._groups[group]))

    @pool.idempotent
    def watch(self, group):
        """Who is in the group, now and after each change, until the caller's time is over."""
        said = None
        while pool.current_call().is_wanted():
            # Also ends when nothing changes, to see leases that end.
            for value in self._groups.watch(group, timeout=0.5):
                names = sorted(self._alive(value))
                if names != said:
                    yield names
                    said = names

    @staticmethod
    def _alive(group):
        now = time.time()
        return {name: until for name, until in (group or {}).items() if until > now}


if __name__ == "__main__":
    Coordinator().serve()

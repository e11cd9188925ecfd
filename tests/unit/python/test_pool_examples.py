# SPDX-License-Identifier: Apache-2.0
"""The examples of elastic objects, with members that are killed and a real etcd."""

import os
import sys
import threading
import time
import unittest

from etcd_support import NO_ETCD, Servers, eventually
from support import missing

SKIP = NO_ETCD or missing("msgpack") or missing("grpc")
if not SKIP:
    from bellows import pool
    from pool_support import PoolTestCase
else:
    PoolTestCase = unittest.TestCase
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../examples/pool")
CALLERS = 4
ROUNDS = 10


@unittest.skipIf(SKIP, SKIP)
class Examples(PoolTestCase):
    def serve(self, program):
        """Two members of it, and a stub."""
        self.keeper.end()
        servers = Servers(self.pool, count=1)
        self.addCleanup(servers.close)
        pool.Shared("wait", self.pool, timeout=30).get("until it answers")
        self.keeper.start()
        started = [self.start(sys.executable, os.path.join(EXAMPLES, program)) for _ in range(2)]
        for one in started:
            self.eventually(one.is_ready)
        self.keeper.say(*(one.as_member() for one in started))
        stub = pool.connect(self.pool)
        self.addCleanup(pool.close, stub)
        return started, stub

    def call_while_killing(self, member, call):
        """call(caller, round) for all, while the member is killed in the middle."""
        failures, middle = [], threading.Event()

        def run(caller):
            try:
                for round in range(ROUNDS):
                    call(caller, round)
                    if round == ROUNDS // 3:
                        middle.set()
            except Exception as error:
                failures.append(error)
                middle.set()

        threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(CALLERS)]
        for one in threads:
            one.start()
        self.assertTrue(middle.wait(20))
        member.kill()
        self.keeper.say(self.other.as_member())
        for one in threads:
            one.join(20)
            self.assertFalse(one.is_alive())
        self.assertEqual(failures, [])

    def test_each_order_is_in_its_book_once(self):
        (first, self.other), stub = self.serve("orders.py")
        placed = {}

        def place(caller, round):
            # Two callers send the same order.
            id = f"{caller // 2}-{round}"
            placed[id] = stub.place(id, f"S{round}", "buy", 1, 2.5)

        self.call_while_killing(first, place)
        found = [(one[0], book) for book in range(4) for one in stub.book(book)]
        self.assertEqual(sorted(found), sorted(placed.items()))
        with self.assertRaises(ValueError):
            stub.place("0-0", "S0", "sell", 1, 2.5)

    def test_no_lock_is_held_twice(self):
        (first, self.other), stub = self.serve("coordinate.py")
        inside, tokens = threading.Lock(), []

        def enter(caller, round):
            holder = f"{caller}-{round}"
            token = eventually(lambda: stub.acquire("door", holder, 30))
            self.assertTrue(inside.acquire(blocking=False), "the lock is held twice")
            tokens.append(token)
            # As long as a second holder would need to come in.
            time.sleep(0.01)
            inside.release()
            stub.release("door", token)

        self.call_while_killing(first, enter)
        self.assertEqual(tokens, sorted(set(tokens)))
        self.assertEqual(len(tokens), CALLERS * ROUNDS)

    def test_a_group(self):
        _, stub = self.serve("coordinate.py")
        stub.join("g", "a", 60)
        changes = iter(stub.watch("g"))
        self.assertEqual(next(changes), ["a"])
        stub.join("g", "b", 1)
        self.assertEqual(next(changes), ["a", "b"])
        self.assertEqual(next(changes), ["a"])
        stub.leave("g", "a")
        self.assertEqual(next(changes), [])
        self.assertEqual(stub.members("g"), [])


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The examples of elastic objects, with members that are killed and a real etcd."""

import os
import subprocess
import sys
import threading
import time
import unittest

from etcd_support import NO_ETCD, Servers, eventually
from support import SECONDS, missing

SKIP = NO_ETCD or missing("msgpack") or missing("grpc")
if not SKIP:
    from bellows import pool
    from pool_support import PoolTestCase
else:
    PoolTestCase = unittest.TestCase
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
BUILD = os.environ.get("BELLOWS_BUILDDIR") or os.path.join(TOP, "build")
CALLERS = 4
ROUNDS = 10


def in_python(name):
    return sys.executable, os.path.join(TOP, "examples/pool", f"{name}.py")


def in_cpp(name):
    return (os.path.join(BUILD, "examples/pool", name),)


@unittest.skipIf(SKIP, SKIP)
class Examples(PoolTestCase):
    # Of the two members.
    programs = in_python, in_python

    def serve(self, name):
        """Two members of it, and a stub."""
        self.keeper.end()
        servers = Servers(self.pool, count=1)
        self.addCleanup(servers.close)
        pool.Shared("wait", self.pool, timeout=30).get("until it answers")
        self.keeper.start()
        started = [self.start(*program(name)) for program in self.programs]
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
        (first, self.other), stub = self.serve("orders")
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
        (first, self.other), stub = self.serve("coordinate")
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
        started, stub = self.serve("coordinate")
        stub.join("g", "a", 60)
        changes = iter(stub.watch("g"))
        self.assertEqual(next(changes), ["a"])
        stub.join("g", "b", 1)
        self.assertEqual(next(changes), ["a", "b"])
        self.assertEqual(next(changes), ["a"])
        stub.leave("g", "a")
        self.assertEqual(next(changes), [])
        self.assertEqual(stub.members("g"), [])
        # A member doesn't wait for watches of callers that are gone.
        del changes
        for one in started:
            one.agent.order("drain 600")
        for one in started:
            self.assertEqual(one.wait(), 0)


@unittest.skipIf(SKIP, SKIP)
class Workers(PoolTestCase):
    def test_each_part_is_done(self):
        folder = os.path.join(TOP, "examples/workers")
        sys.path.insert(0, folder)
        self.addCleanup(sys.path.remove, folder)
        import primes
        import workers

        program = os.path.join(folder, "workers.py")
        started = [self.start(sys.executable, program, "primes") for _ in range(2)]
        for one in started:
            self.eventually(one.is_ready)
        self.keeper.say(*(one.as_member() for one in started))
        with workers.Pool(self.pool, at_once=8) as some:
            counts = some.imap(primes.count, range(0, 60 * primes.STEP, primes.STEP))
            # There are 9592 below 100,000.
            self.assertEqual(next(counts), 9592)
            started[0].kill()
            self.keeper.say(started[1].as_member())
            self.assertEqual(9592 + sum(counts), 412849)
            with self.assertRaises(ValueError):
                some.apply_async(os.path.join, ("a", "b")).result()


@unittest.skipIf(SKIP or missing("distributed"), SKIP or missing("distributed"))
class Dask(PoolTestCase):
    def test_workers_follow_the_tasks_and_leave_nothing_behind(self):
        folder = os.path.join(TOP, "examples/dask")
        sys.path.insert(0, folder)
        self.addCleanup(sys.path.remove, folder)
        from distributed import Client
        from security import of_pool

        file = self.path("scheduler.json")
        scheduler = subprocess.Popen([sys.executable, f"{folder}/scheduler.py", self.pool, file])
        self.addCleanup(scheduler.wait, SECONDS)
        self.addCleanup(scheduler.kill)
        self.eventually(lambda: os.path.exists(file))
        started = [self.start(sys.executable, f"{folder}/worker.py", file) for _ in range(2)]
        for one in started:
            self.eventually(one.is_ready)
        with Client(scheduler_file=file, security=of_pool(self.pool), timeout=SECONDS) as client:
            self.eventually(lambda: len(client.scheduler_info()["workers"]) == 2)
            ran = self.path("ran")
            parts = client.map(lambda n: open(ran, "a").write("x") and -n, range(-20, 0))
            total = client.submit(sum, parts)
            self.assertEqual(total.result(SECONDS), 210)
            # What it has itself made is nowhere else.
            (place,) = client.who_has([total])[total.key]
            (goes,) = [one for one in started if place.endswith(f":{one.port}")]
            # Some 40 s of work, which Dask wants to be done in ten.
            many = client.map(time.sleep, [0.2 + n * 1e-6 for n in range(200)])
            said = started[0].agent.lines
            self.eventually(lambda: any(float(one.split()[2]) > 2 for one in said if "dask_workers" in one))
            client.cancel(many)
            goes.agent.order("drain 60")
            self.assertEqual(goes.wait(), 0)
            self.assertEqual(client.gather(parts), list(range(20, 0, -1)))
            # The other worker has them, and computes none again.
            self.assertEqual(os.path.getsize(ran), 20)


class Cpp(Examples):
    programs = in_cpp, in_cpp

    def test_a_lock_of_python(self):
        _, stub = self.serve("coordinate")
        # In MessagePack this 0.0 is another one than that of C++.
        pool.Shared("example-locks", self.pool)["door"] = {"holder": "", "token": 3, "until": 0.0}
        self.assertEqual(stub.acquire.within(20)("door", "a", 30), 4)
        self.assertIsNone(stub.acquire("door", "b", 30))


class Mixed(Examples):
    """One pool has members of both kinds."""

    programs = in_cpp, in_python
    test_a_group = None


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""What clients see of shared fields while etcd's servers are killed and stopped is linearizable."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

from etcd_support import NO_ETCD, eventually, serve
from support import LONG, missing

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../linearizability"))

from linearizability import Operation, check, describe  # noqa: E402

SKIP = NO_ETCD or missing("msgpack")
if not SKIP:
    from bellows.pool import MayHaveRun, Shared, Unavailable
    from bellows.pool.gateway import Gateway

OPERATIONS = int(os.environ.get("BELLOWS_OPERATIONS", 100_000 if LONG else 3000))
CLIENTS = 6  # half of them in C++
PROGRAM = os.path.join(os.environ.get("BELLOWS_BUILDDIR", ""), "tests/unit/shared_client")
KEYS_AT_ONCE, USES = 4, 150  # then other keys: each has few operations of unknown outcome


class Client(threading.Thread):
    """Does random operations and records them."""

    def __init__(self, number, pool, seed, counter, faults):
        super().__init__(daemon=True)
        self.number, self.counter, self.faults = number, counter, faults
        # Half of them are impatient, so that there are operations of unknown outcome.
        timeout = 6.0 if number % 2 else 0.3
        if number >= CLIENTS // 2 and os.access(PROGRAM, os.X_OK):
            self.shared = Program(pool, timeout)
        else:
            self.shared = Shared("history", pool, timeout=timeout)
        self.rng = random.Random(seed * 100 + number)
        self.history, self.failed, self.unknown = [], 0, 0
        self.seen = {}

    def run(self):
        while True:
            done = next(self.counter)
            if done >= OPERATIONS and (self.faults.round_done.is_set() or self.faults.error):
                return
            group = done // (KEYS_AT_ONCE * USES)
            self.one(f"k{group * KEYS_AT_ONCE + self.rng.randrange(KEYS_AT_ONCE)}", done)

    def one(self, key, number):
        kind = self.rng.choices(["read", "write", "cas", "add"], [40, 20, 25, 15])[0]
        args, shared = (), self.shared
        begin = time.monotonic_ns()
        try:
            if kind == "read":
                result = shared.get(key)
            elif kind == "write":
                args = (1000 * number,)
                shared.set(key, *args)
                result = args[0]
            elif kind == "cas":
                args = (self.seen.get(key), 1000 * number)
                result = shared.compare_and_set(key, *args)
            else:
                args = (1,)
                result = shared.add(key)
        except Unavailable:
            self.failed += 1
            return
        except MayHaveRun:
            self.unknown += 1
            never = float("inf")
            lost = Operation(self.number, key, kind, args, begin, never, optional=True)
            self.history.append(lost)
            return
        end = time.monotonic_ns()
        self.history.append(Operation(self.number, key, kind, args, begin, end, result))
        if kind == "cas":
            result = args[1] if result else None
        self.seen[key] = result


class Program:
    """The fields as the client in C++ has them."""

    def __init__(self, pool, timeout):
        command = [PROGRAM, pool, "history", str(int(timeout * 1000))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def ask(self, kind, *words):
        words = ["null" if word is None else str(word) for word in words]
        self.process.stdin.write(" ".join([kind, *words]) + "\n")
        answer = self.process.stdout.readline().split()
        if answer[:1] != ["ok"]:
            raise MayHaveRun("") if answer == ["unknown"] else Unavailable(" ".join(answer))
        return None if answer[1] == "null" else int(answer[1])

    def get(self, key):
        return self.ask("read", key)

    def set(self, key, value):
        self.ask("write", key, value)

    def compare_and_set(self, key, old, new):
        return bool(self.ask("cas", key, old, new))

    def add(self, key):
        return self.ask("add", key, 1)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=30)


class Faults(threading.Thread):
    """Kills the leader, stops one, and restarts all, again and again."""

    def __init__(self, servers, seed, pause):
        super().__init__(daemon=True)
        self.servers, self.rng, self.pause = servers, random.Random(seed), pause
        self.gateways = [Gateway(servers.only(index)) for index in range(3)]
        self.over, self.round_done = threading.Event(), threading.Event()
        self.counts = {"leader killed": 0, "stopped": 0, "all restarted": 0}
        self.error = None

    def run(self):
        try:
            while not self.over.wait(self.pause):
                for fault in (self.kill_leader, self.stop, self.restart_all):
                    fault()
                    if self.over.wait(self.pause):
                        return
                self.round_done.set()
        except Exception as error:  # shown by the test
            self.error = error

    def kill_leader(self):
        leader = eventually(lambda: self.leader() + 1) - 1
        self.servers.kill(leader)
        time.sleep(self.rng.random())
        self.servers.start()
        self.counts["leader killed"] += 1

    def leader(self):
        leader = self.servers.leader(self.gateways)
        return -1 if leader is None else leader

    def stop(self):
        victim = self.rng.randrange(3) if self.rng.random() < 0.5 else max(0, self.leader())
        self.servers.signal(victim, signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.2, 3))
        self.servers.signal(victim, signal.SIGCONT)
        self.counts["stopped"] += 1

    def restart_all(self):
        for index in range(3):
            self.servers.kill(index)
        self.servers.start()
        self.counts["all restarted"] += 1


@unittest.skipIf(SKIP, SKIP)
class History(unittest.TestCase):
    def test_history(self):
        """operations of several clients during faults of etcd are linearizable"""
        servers = serve(self.addCleanup)
        directory = servers.directory
        Shared("wait", directory, timeout=30).get("until it answers")
        seed = int(os.environ.get("BELLOWS_SEED", time.time()))
        print(f"# seed {seed}")
        counter, faults = iter(range(10**9)), Faults(servers, seed, 4 if LONG else 0.5)
        clients = [Client(number, directory, seed, counter, faults) for number in range(CLIENTS)]
        begin = time.monotonic()
        for thread in [*clients, faults]:
            thread.start()
        for client in clients:
            client.join(6000 if LONG else 50)
        faults.over.set()
        faults.join(50)
        for client in clients:
            client.shared.close()
        self.assertFalse(any(thread.is_alive() for thread in [*clients, faults]))
        self.assertIsNone(faults.error)
        history = [operation for client in clients for operation in client.history]
        failed, unknown = (sum(getattr(c, n) for c in clients) for n in ("failed", "unknown"))
        between = time.monotonic()
        violation = check(history)
        print(
            f"# {sum(isinstance(c.shared, Program) for c in clients)} clients in C++; "
            f"{len(history)} operations and {failed} that were not done, {unknown} of unknown "
            f"outcome, in {between - begin:.0f} s; {faults.counts}; "
            f"checked in {time.monotonic() - between:.1f} s",
            flush=True,
        )
        self.assertIsNone(violation, violation and describe(violation))
        self.assertGreaterEqual(len(history) + failed, OPERATIONS)
        self.assertGreater(min(faults.counts.values()), 0)
        # A fault lasts for longer on a busy machine. A history of failures would show nothing.
        self.assertLess(failed + unknown, OPERATIONS / 4)

# SPDX-License-Identifier: Apache-2.0
"""The checker of histories, which has no part of the package in it."""

import itertools
import json
import os
import random
import subprocess
import sys
import time
import unittest
from dataclasses import replace

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../linearizability")
sys.path.insert(0, FOLDER)

from linearizability import (  # noqa: E402
    ANY,
    UNKNOWN,
    BadHistory,
    Operation,
    check,
    describe,
    read,
    step,
)

NEVER = float("inf")


def did(call, ret, kind, *args, result=UNKNOWN, key="k", process=0):
    """An operation with an answer, or with `ret` NEVER one of unknown outcome."""
    return Operation(process, key, kind, args, call, ret, result, ret == NEVER)


def possible(order, initial=None):
    """Whether these results come from this order."""
    state = initial
    for operation in order:
        kind, args, result = operation.kind, operation.args, operation.result
        if kind == "read":
            got = state
        elif kind == "write":
            got, state = UNKNOWN, args[0]
        elif kind == "cas":
            got = state == args[0]
            state = args[1] if got else state
        else:
            got = state = (state or 0) + args[0]
        if result is not UNKNOWN and got != result:
            return False
    return True


def brute_force(operations):
    """All orders of all sets with the operations that were certainly done."""
    optional = [o for o in operations if o.optional]
    definite = [o for o in operations if not o.optional]
    for count in range(len(optional) + 1):
        for some in itertools.combinations(optional, count):
            for order in itertools.permutations(definite + list(some)):
                late = all(a.call <= b.ret for a, b in itertools.combinations(order, 2))
                if late and possible(order):
                    return True
    return False


def random_history(rng, size):
    """Up to `size` operations that overlap, most with an answer that fits some order."""
    operations, state = [], None
    for _ in range(rng.randint(1, size)):
        at, long = rng.randint(0, 12), rng.randint(0, 5)
        kind = rng.choice(["read", "read", "write", "cas", "cas", "add"])
        value = rng.randint(1, 3)
        args = {"read": (), "write": (value,), "cas": (rng.randint(1, 3), value), "add": (1,)}[kind]
        result = {
            "read": rng.choice([None, 1, 2, 3, state]),
            "write": UNKNOWN,
            "cas": rng.random() < 0.5,
            "add": rng.randint(1, 4),
        }[kind]
        if kind == "write":
            state = value
        if rng.random() < 0.2:
            operations.append(did(at, NEVER, kind, *args))
        else:
            operations.append(did(at, at + long, kind, *args, result=result))
    return operations


def simulated(rng, count, processes, unknown):
    """What `processes` saw of registers that are linearizable, with answers that were lost."""
    operations, state, clock, free = [], {}, 0.0, [0.0] * processes
    for _ in range(count):
        process = min(range(processes), key=lambda p: free[p])
        clock = max(clock, free[process]) + rng.random()  # when it takes effect
        call = max(free[process], clock - rng.random() * processes)
        ret = free[process] = clock + rng.random() * processes
        key = f"k{rng.randrange(4)}"
        old = state.get(key)
        kind = rng.choice(["read", "read", "write", "cas", "add"])
        args, result, after = (), old, old
        if kind == "write":
            after = rng.randrange(1000)
            args, result = (after,), UNKNOWN
        elif kind == "cas":
            args = (old if rng.random() < 0.7 else -1, rng.randrange(1000))
            result = old == args[0]
            after = args[1] if result else old
        elif kind == "add":
            args, result, after = (1,), (old or 0) + 1, (old or 0) + 1
        lost = rng.random() < unknown
        if not lost or rng.random() < 0.5:
            state[key] = after
        if lost:
            ret, result = NEVER, UNKNOWN
        operations.append(did(call, ret, kind, *args, result=result, key=key, process=process))
    return operations


class Known(unittest.TestCase):
    def good(self, *operations):
        self.assertIsNone(check(operations))

    def bad(self, *operations):
        violation = check(operations)
        self.assertIsNotNone(violation)
        return list(violation.operations)

    def test_good(self):
        """operations that overlap take effect in either order, and unknown ones late or never"""
        self.good()
        self.good(did(0, 1, "write", 1), did(2, 3, "read", result=1))
        write, later = did(0, 5, "write", 1), did(3, 4, "read", result=1)
        self.good(write, did(1, 2, "read", result=None), later)
        self.good(write, did(1, 2, "read", result=1), later)
        self.good(did(0, NEVER, "write", 1), did(1, 2, "read", result=None))
        late = did(0, NEVER, "write", 1), did(1, 2, "write", 2), did(3, 4, "read", result=2)
        self.good(*late, did(5, 6, "read", result=1))
        self.good(did(0, NEVER, "cas", None, 7), did(3, 4, "cas", 7, 8, result=True))
        self.good(did(0, 9, "add", 1, result=2), did(0, 9, "add", 1, result=1))

    def test_stale_read(self):
        """a value that was overwritten before the read began is a violation"""
        first, second = did(0, 1, "write", 1), did(2, 3, "write", 2)
        stale = did(4, 5, "read", result=1)
        many = [did(t, t + 1, "read", result=2) for t in range(10, 90, 2)]
        self.assertEqual(self.bad(first, second, stale, *many), [second, stale])
        self.bad(did(0, 9, "write", 1), did(1, 2, "read", result=1), did(3, 4, "read", result=None))

    def test_lost_write(self):
        """a write that was acknowledged and is never seen is a violation"""
        first = did(0, 1, "read", result=None)
        write, after = did(2, 3, "write", 1), did(4, 5, "read", result=None)
        self.assertEqual(self.bad(first, write, after), [write, after])

    def test_two_winners(self):
        """two successes of one compare-and-set are a violation, as is an addition done twice"""
        one, two = did(0, 5, "cas", None, 1, result=True), did(1, 6, "cas", None, 2, result=True)
        self.assertEqual(self.bad(one, two), [one, two])
        self.bad(did(0, 1, "add", 1, result=1), did(2, 3, "add", 1, result=3))
        twice = did(0, 1, "add", 1, result=1), did(2, 3, "add", 1, result=3)
        self.good(*twice, did(1, NEVER, "add", 1))
        self.bad(did(0, NEVER, "add", 1), did(2, 3, "read", result=2))

    def test_unknown_before_its_call(self):
        """an operation of unknown outcome can't have taken effect before it was called"""
        self.bad(did(0, 1, "read", result=1), did(2, NEVER, "write", 1))
        once = did(0, NEVER, "write", 1), did(1, 2, "read", result=1), did(3, 4, "write", 2)
        self.bad(*once, did(5, 6, "read", result=1))

    def test_keys(self):
        """keys don't explain each other"""
        self.bad(did(0, 1, "write", 1, key="a"), did(2, 3, "read", result=1, key="b"))
        self.good(did(0, 1, "write", 1, key="a"), did(2, 3, "read", result=None, key="b"))

    def test_where(self):
        """of a long history only what contradicts itself is shown"""
        rng = random.Random(3)
        operations = [did(t, t + 1, "write", t) for t in range(0, 4000, 2)]
        operations += [did(t + 1.1, t + 1.2, "read", result=t) for t in range(0, 4000, 2)]
        wrong = did(2000.1, 2000.2, "read", result=7)
        rng.shuffle(operations)
        shown = self.bad(*operations, wrong)
        self.assertIn(replace(wrong, optional=False), shown)
        self.assertLessEqual(len(shown), 3)


class Oracle(unittest.TestCase):
    def test_brute_force(self):
        """on small random histories the answer is that of trying every order"""
        rng, answers = random.Random(11), {True: 0, False: 0}
        for case in range(4000):
            operations = random_history(rng, 5 if case % 8 else 6)
            wanted = brute_force(operations)
            violation = check(operations)
            self.assertEqual(violation is None, wanted, operations)
            answers[wanted] += 1
            if violation and violation.initial is not ANY:
                self.assertFalse(brute_force(violation.operations), violation)
            elif violation:
                for state in (None, 1, 2, 3, 4, 5, 6):
                    self.assertIsNotNone(check(violation.operations, initial=state), violation)
        self.assertGreater(min(answers.values()), 500, answers)

    def test_simulated(self):
        """a long history that is linearizable passes, and with one result changed does not"""
        rng = random.Random(5)
        operations = simulated(rng, 20000, 8, 0.003)
        self.assertIsNone(check(operations))
        reads = [i for i, o in enumerate(operations) if o.kind == "read" and not o.optional]
        at = reads[len(reads) * 3 // 4]
        operations[at] = replace(operations[at], result=-5)
        violation = check(operations)
        self.assertIn(operations[at], violation.operations)

    def test_many_unknown(self):
        """many operations of unknown outcome on one key don't make it slow"""
        begin = time.monotonic()
        operations = [did(t, NEVER, "write", -t) for t in range(1, 40)]
        operations += [did(t + 0.1, t + 0.6, "write", t) for t in range(1, 400)]
        operations += [did(t + 0.7, t + 0.8, "read", result=t) for t in range(1, 400)]
        self.assertIsNone(check(operations))
        self.assertLess(time.monotonic() - begin, 30)


class Lines(unittest.TestCase):
    def test_read(self):
        """a history is read from lines, and what is wrong with one is said with its number"""
        line = {"process": 1, "key": "a", "op": "cas", "args": [None, [1]], "call": 1, "return": 2,
                "outcome": "ok", "result": True}
        (operation,) = read([json.dumps(line), "", json.dumps({**line, "outcome": "failed"})])
        self.assertIs(operation.result, True)
        self.assertEqual(step(operation, None), operation.args[1])
        (unknown,) = read([json.dumps({**line, "outcome": "unknown"})])
        self.assertTrue(unknown.optional)
        wrong = {"op": "swap"}, {"args": []}, {"outcome": "maybe"}, {"return": 0}, {"call": "x"}
        for change in wrong:
            with self.assertRaisesRegex(BadHistory, "^line 2: "):
                read(["", json.dumps({**line, **change})])
        for text in ("{", "[]", "3"):
            with self.assertRaises(BadHistory):
                read([text])

    def test_command(self):
        """the command answers by its status and shows what contradicts itself"""
        line = {"process": 1, "key": "a", "op": "write", "args": [1], "call": 1, "return": 2,
                "outcome": "ok"}
        stale = {**line, "op": "read", "args": [], "call": 3, "return": 4, "result": 2}
        for lines, status, text in (
            ([line], 0, "linearizable: 1 operations on 1 keys"),
            ([line, stale], 1, "process 1: read() -> 2"),
            ([{}], 2, ""),
        ):
            done = subprocess.run(
                [os.path.join(FOLDER, "check"), "-"],
                capture_output=True,
                text=True,
                input="\n".join(map(json.dumps, lines)),
                timeout=30,
            )
            self.assertEqual(done.returncode, status, done)
            self.assertIn(text, done.stdout)
        self.assertIn("any value", describe(check(read(map(json.dumps, [line, stale])))))

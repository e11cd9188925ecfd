# SPDX-License-Identifier: Apache-2.0
"""Callers of the tests' elastic object (tests/unit/python/pool_member.py) in a pool: calls.py POOL STOPFILE LEDGER

Several threads call it until the file is there. Calls of the idempotent method must all succeed. What became of each call of
the other one is known or not; the ledger of the members says which have run. Prints one line, and "wrong" where something is.
"""

import collections
import os
import sys
import threading
import time

from bellows import pool

THREADS = 4


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.done, self.unknown, self.refused = set(), set(), set()
        self.echoes = 0
        self.wrong = []
        self.slowest = 0.0

    def took(self, begin):
        with self.lock:
            self.slowest = max(self.slowest, time.monotonic() - begin)


def call(stub, tally, thread, stop):
    number = 0
    while not os.path.exists(stop):
        number += 1
        name = f"{thread}.{number}"
        begin = time.monotonic()
        try:
            if stub.echo(name) != name:
                tally.wrong.append(f"another's answer to {name}")
            tally.echoes += 1
        except pool.PoolError as error:
            tally.wrong.append(f"an idempotent call failed: {error!r}")
        tally.took(begin)
        try:
            stub.add(name)
            tally.done.add(name)
        except pool.MayHaveRun:
            tally.unknown.add(name)
        except pool.Unavailable:
            tally.refused.add(name)
        time.sleep(0.01)


def main():
    name, stop, ledger = sys.argv[1:]
    tally = Tally()
    with pool.connect(name) as stub:
        threads = [threading.Thread(target=call, args=(stub, tally, i, stop)) for i in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with open(ledger) as file:
        ran = collections.Counter(line.strip() for line in file)
    tally.wrong += [f"{name} ran {count} times" for name, count in ran.items() if count > 1]
    tally.wrong += [f"{name} was answered and did not run" for name in tally.done - set(ran)]
    tally.wrong += [f"{name} ran and was said not to have" for name in tally.refused & set(ran)]
    print(f"{tally.echoes} echoes, {len(tally.done)} done, {len(tally.unknown)} unknown, {len(tally.refused)} refused,"
          f" slowest {tally.slowest:.2f} s, {'wrong: ' + '; '.join(tally.wrong[:5]) if tally.wrong else 'exact'}")


if __name__ == "__main__":
    main()

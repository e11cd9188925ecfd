# SPDX-License-Identifier: Apache-2.0
"""Counts primes: primes.py POOL uses the workers of a pool, which import this file too."""

import sys

STEP = 100_000


def count(start):
    """Primes from start to start + STEP."""
    found = bytearray([1]) * STEP
    for n in range(2, int((start + STEP) ** 0.5) + 1):
        first = max(n * n, -(-start // n) * n) - start
        found[first::n] = bytes(len(range(first, STEP, n)))
    return sum(found[max(0, 2 - start) :])


if __name__ == "__main__":
    import primes
    from workers import Pool

    with Pool(sys.argv[1]) as pool:
        print(sum(pool.imap(primes.count, range(0, 1000 * STEP, STEP))))

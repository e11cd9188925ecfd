# SPDX-License-Identifier: Apache-2.0
"""Routes orders to one of several books by their symbol, each once: orders.py serves, as a member of a pool.

Books are fields that the pool shares, so any member takes any order. An order that is sent again, by
whomever, is in its book once. A book has at most 1 MiB.
"""

import os
import zlib

from bellows import pool

BOOKS = int(os.environ.get("BOOKS", "4"))


class Router(pool.ElasticObject):
    def __init__(self):
        self._orders = pool.Shared("example-orders")
        self._books = pool.Shared("example-books")

    @pool.idempotent
    def place(self, id, symbol, side, quantity, price):
        """Puts the order into a book, and returns the book's number. Raises ValueError if it is no
        order, or if another one has this id."""
        if side not in ("buy", "sell") or quantity <= 0 or price <= 0:
            raise ValueError(f"order {id}: buy or sell more than 0 for more than 0")
        order = [id, symbol, side, quantity, price]
        if not self._orders.compare_and_set(id, None, order) and self._orders[id] != order:
            raise ValueError(f"order {id}: another order has this id")
        # A member that was lost here has left the id without its place, and the next call gives it.
        book = zlib.crc32(symbol.encode()) % BOOKS

        def placed(orders):
            orders = orders or []
            return orders if any(one[0] == id for one in orders) else [*orders, order]

        self._books.update(str(book), placed)
        return book

    @pool.idempotent
    def book(self, number):
        """Its orders, the oldest first."""
        return self._books[str(number)] or []


if __name__ == "__main__":
    Router().serve()

# SPDX-License-Identifier: Apache-2.0
"""Places an order, and prints its book: orders_client.py POOL ID SYMBOL buy|sell QUANTITY PRICE"""

import sys

from bellows import pool

name, id, symbol, side, quantity, price = sys.argv[1:]
with pool.connect(name) as router:
    for order in router.book(router.place(id, symbol, side, int(quantity), float(price))):
        print(*order)

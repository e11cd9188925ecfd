# SPDX-License-Identifier: Apache-2.0
"""Null calls of an elastic object against bare ones of gRPC, as object_bench.cc does it for C++:
stub_calls.py serve | bare | call POOL ADDRESS THREADS CALLS REPEATS."""
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from bellows import pool
from bellows.pool import place

BARE = "/bare.Bare/Call"


class Null(pool.ElasticObject):
    @pool.idempotent
    def null(self):
        return None


class Bare(grpc.GenericRpcHandler):
    """Answers with what came."""

    handler = grpc.unary_unary_rpc_method_handler(lambda body, _: body)

    def service(self, handler_call_details):
        return self.handler if handler_call_details.method == BARE else None


def serve_bare():
    server = grpc.server(ThreadPoolExecutor(16), handlers=[Bare()])
    port = server.add_secure_port("127.0.0.1:0", place.server_credentials(os.environ["BELLOWS_POOL"]))
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def took(threads, calls, call):
    """Seconds of one call, in each of the threads."""
    def work():
        for _ in range(calls):
            call()
    running = [threading.Thread(target=work) for _ in range(threads)]
    begin = time.perf_counter()
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return (time.perf_counter() - begin) / calls


def measure(directory, address, threads, calls, repeats):
    with pool.connect(directory) as stub, place.open_channel(address, place.channel_credentials(directory)) as channel:
        multicallable = channel.unary_unary(BARE)
        body = b"a body as long as"[:9]

        def bare():
            multicallable(body, timeout=30)

        for call in (stub.null, bare):
            took(threads, calls, call)
        for _ in range(repeats):
            print(took(threads, calls, stub.null), took(threads, calls, bare), flush=True)


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "serve":
        Null().serve()
    elif what == "bare":
        serve_bare()
    else:
        measure(*arguments[:2], *map(int, arguments[2:]))

# SPDX-License-Identifier: Apache-2.0
import os
import random
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from support import TestCase, missing

MISSING = missing("grpc", "msgpack")
if not MISSING:
    import grpc

    from bellows import pool
    from bellows.pool import members, place, wire
    from pool_support import PoolTestCase, make_key, message
else:
    PoolTestCase = TestCase


class WithoutPackages(TestCase):
    def test_import(self):
        """bellows.pool can be imported where there is no gRPC"""
        out, _ = self.program("""
            import sys
            sys.modules["grpc"] = sys.modules["msgpack"] = None
            from bellows import pool
            pool.idempotent(lambda: None)
            try:
                pool.metric("queue", 1)
            except pool.Unavailable as error:
                print(error)
        """)
        self.assertIn("BELLOWS_POOL_SOCKET", out)


@unittest.skipIf(MISSING, MISSING)
class Wire(TestCase):
    def test_values(self):
        """values of all kinds come back as they were"""
        for value in (None, True, -1, 2**64 - 1, 1.5, "ü", b"\0\xff", [1, [2]], {"a": {1: 2}}, [], {}):
            self.assertEqual(wire.unpack(wire.pack(value)), value)
        self.assertEqual(wire.unpack(wire.pack((1, 2))), [1, 2])

    def test_unsendable(self):
        """what can't be sent says so"""
        for value, error in (({1}, TypeError), (object(), TypeError), (2**64, ValueError)):
            with self.assertRaises(error):
                wire.pack([value])

    @unittest.skipIf(missing("numpy"), missing("numpy"))
    def test_arrays(self):
        """arrays of numbers come back with their types and shapes, and those of objects are refused"""
        import numpy

        for array in (
            numpy.arange(6, dtype=">i2").reshape(2, 3)[:, ::-1],
            numpy.zeros((0, 4), "c16"),
            numpy.array(True),
        ):
            back = wire.unpack(wire.pack({"array": array}))["array"]
            self.assertEqual((back.dtype, back.shape), (array.dtype, array.shape))
            self.assertTrue((back == array).all())
            back[...] = 0
        self.assertEqual(wire.unpack(wire.pack(numpy.float32(1.5))), 1.5)
        with self.assertRaises(TypeError):
            wire.pack(numpy.array([print]))

    def test_random_bytes(self):
        """random bytes are refused and never anything but WireError"""
        rng = random.Random(1)
        good = wire.pack(["echo", [1, {"a": b"xyz"}, [None] * 20], {"named": 1.5}])
        parsers = (wire.unpack_request, members.parse)
        for turn in range(20_000):
            body = bytearray(rng.randbytes(rng.randrange(60)) if turn % 2 else good)
            for _ in range(rng.randrange(1, 5)):
                if body:
                    body[rng.randrange(len(body))] = rng.randrange(256)
            for parser in parsers:
                try:
                    parser(bytes(body))
                except ValueError:
                    pass

    def test_hostile(self):
        """values that claim to be huge, nest deeply, or are of an extension type are refused"""
        for body in (
            b"\xdd\xff\xff\xff\xff",  # 2^32 items
            b"\xc6\xff\xff\xff\xff",  # 2^32 bytes
            b"\x91" * 100_000 + b"\xc0",
            b"\xd4\x05\x00",
            b"\xc7\x06\x01\x93\xa3|O8\x90\xc4\x00",  # An array of objects.
            b"\x81\x90\x01",  # A list is a key.
            wire.pack([1, 2, 3]),
            wire.pack(["m", [], {1: 2}]),
            b"",
        ):
            with self.assertRaises(wire.WireError):
                wire.unpack_request(body)

    def test_members(self):
        """the keeper's list is read with fields that this package doesn't know"""
        listed = [members.Member(12345678, "n1:5", 2**64 - 1, 2), members.Member(2, "", 0, 0)]
        self.assertEqual(members.parse(message(listed)), listed)
        with self.assertRaises(ValueError):
            members.parse(message(listed)[:-4])


@unittest.skipIf(MISSING, MISSING)
class Calls(PoolTestCase):
    def test_calls(self):
        """a stub has the methods of the class, with values, exceptions and streams"""
        self.members(1)
        with pool.connect(self.pool) as index:
            self.assertEqual(index.echo({"a": [1]}), {"a": [1]})
            self.assertEqual(index.echo(1, 2, by=b"3"), [1, [2], {"by": b"3"}])
            self.assertEqual(list(index.count(3)), [0, 1, 2])
            self.assertEqual(list(index.count(2000)), list(range(2000)))
            with self.assertRaises(AttributeError):
                index.nothing()
            with self.assertRaises(AttributeError):
                index.serve()
            with self.assertRaises(TypeError):
                index.who(1)
            with self.assertRaises(TypeError):
                index.wrong()
            with self.assertRaises(TypeError):
                index.echo({1, 2})
            first, second = index.call_id(), index.call_id()
            self.assertNotEqual(first, second)
            self.assertEqual(first.partition(":")[0], second.partition(":")[0])

    def test_exceptions(self):
        """an exception arrives as the caller's class or as RemoteError, with where it was raised"""
        self.members(1)

        @pool.register_exception
        class Known(Exception):
            pass

        with pool.connect(self.pool) as index:
            with self.assertRaises(KeyError) as raised:
                index.fail("key")
            self.assertEqual(raised.exception.args, ("nothing",))
            self.assertIn('return {}["nothing"]', str(raised.exception.__cause__))
            self.assertNotIn("service.py", str(raised.exception.__cause__))
            with self.assertRaises(Known):
                index.fail("known")
            with self.assertRaises(pool.RemoteError) as raised:
                index.fail("odd")
            self.assertEqual((raised.exception.kind, str(raised.exception)), ("Odd", "Odd: not today"))
            stream = index.break_off()
            self.assertEqual(next(stream), 1)
            with self.assertRaises(Known):
                next(stream)

    def test_deadlines(self):
        """a call ends at its deadline, which is its own, its stub's or its method's"""
        self.members(1)
        with pool.connect(self.pool) as index:
            for call in (index.patient, lambda: index.slow.within(0.2)(5)):
                begin = time.monotonic()
                with self.assertRaises(pool.TimeoutError):
                    call()
                self.assertLess(time.monotonic() - begin, 2)
            self.assertAlmostEqual(index.time_left(), 30, delta=2)
            self.assertAlmostEqual(index.time_left.within(9)(), 9, delta=2)
        with pool.connect(self.pool, timeout=7) as index:
            self.assertAlmostEqual(index.time_left(), 7, delta=2)

    def test_nobody(self):
        """without a member a call ends as one that has not run, and says why"""
        with pool.connect(self.pool, timeout=0.5) as index:
            with self.assertRaisesRegex(pool.Unavailable, "names no member"):
                index.echo(1)
        os.unlink(f"{self.pool}/keeper.json")
        with pool.connect(self.pool, timeout=0.5) as index:
            with self.assertRaisesRegex(pool.Unavailable, "keeper.json"):
                index.echo(1)

    def test_strangers(self):
        """a caller without the key or with another pool's is refused, and is not taken for a member"""
        (member,) = self.members(1)
        other = self.path("pools/other")
        make_key(other)
        address = f"127.0.0.1:{member.port}"
        strangers = [
            place.open_channel(address, place.channel_credentials(other)),
            grpc.insecure_channel(address),
            grpc.secure_channel(
                address,
                grpc.ssl_channel_credentials(open(f"{self.pool}/cert.pem", "rb").read()),
                (("grpc.ssl_target_name_override", "bellows-pool"),),
            ),
        ]
        for channel in strangers:
            with channel, self.assertRaises(grpc.RpcError) as raised:
                channel.unary_unary(wire.CALL)(wire.pack(["add", ["stranger"], {}]), timeout=5)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        # It finds our member by our keeper's address, but has its own key.
        os.link(f"{self.pool}/keeper.json", f"{other}/keeper.json")
        with pool.connect(other, timeout=0.5) as index, self.assertRaises(pool.Unavailable):
            index.add("stranger")
        self.assertEqual(self.ledger(), [])
        with self.assertRaises(pool.Unavailable):
            pool.connect(self.path("pools/none"))

    def test_frames(self):
        """a member refuses frames that are no calls, and answers the next one"""
        (member,) = self.members(1)
        rng = random.Random(2)
        good = wire.pack(["add", ["hostile"], {}])
        with place.open_channel(f"127.0.0.1:{member.port}", place.channel_credentials(self.pool)) as channel:
            call, stream = channel.unary_unary(wire.CALL), channel.unary_stream(wire.STREAM)
            bodies = [rng.randbytes(rng.randrange(50)) for _ in range(150)]
            bodies += [good[:cut] for cut in range(len(good))]
            bodies += [wire.pack([name, [], {}]) for name in ("serve", "_note", "__init__", "count", "")]
            for body in bodies:
                with self.assertRaises(grpc.RpcError) as raised:
                    call(body, timeout=5)
                self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn((wire.NOT_RUN, "1"), raised.exception.trailing_metadata())
                with self.assertRaises(grpc.RpcError) as raised:
                    list(stream(body if body != wire.pack(["count", [], {}]) else b"", timeout=5))
                self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            with self.assertRaises(grpc.RpcError):
                channel.unary_unary("/bellows.pool.Object/Other")(good, timeout=5)
            self.assertEqual(self.ledger(), [])
            self.assertEqual(wire.unpack_answer(call(good, timeout=5)), "hostile")

    def test_incarnations(self):
        """a call for a member's predecessor at its address does not run"""
        (member,) = self.members(1)
        old = member.as_member()._replace(incarnation=member.incarnation - 1)
        self.keeper.say(old)
        with pool.connect(self.pool, timeout=0.5) as index:
            with self.assertRaises(pool.Unavailable):
                index.echo(1)
            self.keeper.say(member.as_member())
            self.eventually(lambda: index._bellows_caller._targets.methods)
            index.add("now")
            self.keeper.say(old)
            time.sleep(0.1)
            with self.assertRaises(pool.Unavailable):
                index.add("never")
        self.assertEqual(self.ledger(), ["now"])

    def test_spread(self):
        """calls of many threads go to all members, and slow calls to those that are free"""
        self.members(3)
        with pool.connect(self.pool) as index, ThreadPoolExecutor(6) as threads:
            answered = set()
            self.eventually(
                lambda: answered.update(threads.map(lambda _: index.who(), range(20)))
                or len(answered) == 3
            )
            held = [threads.submit(index.slow, 0.5) for _ in range(3)]
            self.assertGreaterEqual(len({one.result() for one in held}), 2)

    def test_full(self):
        """what is above a member's limit is refused at once, and waits at its caller for another member"""
        self.members(2, THREADS="1", LIMIT="2")
        with pool.connect(self.pool) as index, ThreadPoolExecutor(12) as threads:
            index.who()
            held = [threads.submit(index.slow, 0.2, f"held-{n}") for n in range(12)]
            self.assertEqual(len([one.result() for one in held]), 12)
        self.assertEqual(len(set(self.ledger())), 12)

    def test_signals(self):
        """a member says where it listens, what it measures and what it votes"""
        (member,) = self.members(1, WISH="-2")
        self.assertEqual([line.split()[0] for line in member.agent.lines[:3]], ["listen", "watch", "ready"])
        with pool.connect(self.pool) as index:
            index.stretch()
        self.eventually(lambda: "metric stretched 2.5" in member.agent.lines)
        self.eventually(lambda: "vote -2" in member.agent.lines)
        self.eventually(lambda: "metric bellows_calls 0.0" in member.agent.lines)

    def test_abandoned(self):
        """a stream that its caller leaves ends in the member"""
        self.members(1, THREADS="1", LIMIT="1")
        with pool.connect(self.pool, timeout=10) as index:
            for number in index.count(10**6, 0.01):
                if number == 3:
                    break
            self.assertEqual(index.echo(1), 1)

    def test_threads(self):
        """one stub serves many threads, each with its own answers"""
        self.members(2)
        with pool.connect(self.pool) as index:
            wrong = []

            def work(thread):
                for number in range(50):
                    if index.echo([thread, number]) != [thread, number]:
                        wrong.append((thread, number))

            threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

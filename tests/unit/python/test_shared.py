# SPDX-License-Identifier: Apache-2.0
"""Fields that members of a pool share, in a real etcd."""

import http.server
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from etcd_support import NO_ETCD, make_key, serve
from support import missing

CLIENT = os.path.join(os.environ.get("BELLOWS_BUILDDIR", ""), "tests/unit/shared_client")
SKIP = NO_ETCD or missing("msgpack")
if not SKIP:
    from bellows.pool import (
        FullError,
        InvalidError,
        LockLost,
        MayHaveRun,
        Shared,
        Unavailable,
    )
    from bellows.pool.gateway import Deadline, Gateway, Lost


class Forgetful(http.server.ThreadingHTTPServer):
    """A server of etcd's gateway that asks the real one, and then ends `lose` connections on which
    there were changes without an answer."""

    daemon_threads = True

    def __init__(self, pool):
        super().__init__(("127.0.0.1", 0), ForgetfulHandler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(pool, "cert.pem"), os.path.join(pool, "key.pem"))
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.gateway, self.lose, self.meanwhile = Gateway(pool), 0, lambda: None
        threading.Thread(target=self.serve_forever, daemon=True).start()


class ForgetfulHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(self.server.gateway.ask(self.path, body, Deadline(20))).encode()
        if self.path == "/v3/kv/txn" and self.server.lose:
            self.server.lose -= 1
            self.server.meanwhile()
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@unittest.skipIf(SKIP, SKIP)
class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.servers = serve(cls.addClassCleanup)
        cls.dir = cls.servers.directory
        Shared("wait", cls.dir, timeout=30).get("until it answers")

    def shared(self, **more):
        shared = Shared(self.id(), self.dir, **more)
        self.addCleanup(shared.close)
        return shared

    def losing(self, shared, lost):
        """Lets the answers to so many transactions be lost after `meanwhile` has run."""
        gateway, ask_once = shared._gateway, shared._gateway.ask_once
        left = [lost]

        def losing(path, body, timeout):
            answer = ask_once(path, body, timeout)
            if path == "/v3/kv/txn" and left[0]:
                left[0] -= 1
                self.meanwhile()
                raise Lost("by the test")
            return answer

        gateway.ask_once = losing

    def meanwhile(self):
        pass

    def test_values(self):
        """fields are read and written as attributes and items, with every kind of value"""
        shared, other = self.shared(), self.shared()
        self.assertIsNone(shared.nothing)
        for value in (0, True, -1.5, "grün", b"\0\xff", [1, [2]], {"a": {1: None}}, 2**63, "", []):
            shared.field = value
            self.assertEqual(other["field"], value)
            self.assertIs(type(other.field), type(value))
        shared["a/b c"] = (1, 2)
        self.assertEqual(other["a/b c"], [1, 2])
        self.assertIsNone(Shared(type("Other", (), {}), self.dir).field)

    def test_changes(self):
        """compare_and_set, update and add by several threads and clients lose nothing"""
        first, second = self.shared(), self.shared()
        self.assertTrue(first.compare_and_set("x", None, 1))
        self.assertFalse(second.compare_and_set("x", None, 2))
        self.assertFalse(second.compare_and_set("x", True, 2))
        self.assertTrue(second.compare_and_set("x", 1, 2))
        self.assertEqual(first.update("x", lambda x: x * 10), 20)
        self.assertEqual(first.add("n", 5), 5)

        def work(shared):
            for _ in range(20):
                shared.add("n")
                shared.update("list", lambda now: (now or []) + [1])

        threads = [threading.Thread(target=work, args=(s,)) for s in (first, second) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
        self.assertEqual(first.n, 85)
        self.assertEqual(len(second.list), 80)

    def test_refused(self):
        """what can't be stored, or is no number, is refused and changes nothing"""
        shared = self.shared()
        shared.x = "text"
        for call in (
            lambda: shared.set("x", object()),
            lambda: shared.set("x", 2**64),
            lambda: shared.set("x", b"0" * (1 << 20)),
            lambda: shared.add("x"),
            lambda: shared.set("", 1),
            lambda: Shared("a/b", self.dir),
            lambda: Shared("", self.dir),
        ):
            with self.assertRaises(InvalidError):
                call()
        with self.assertRaises(AttributeError):
            shared.get = 1
        self.assertEqual(shared.x, "text")
        shared.x = b"0" * ((1 << 20) - 100)
        self.assertEqual(len(shared.x), (1 << 20) - 100)

    def test_lost_answer(self):
        """a change whose answer is lost is done once, and known to be done"""
        shared = self.shared()
        shared.n = 1
        self.losing(shared, 1)
        self.assertEqual(shared.add("n"), 2)
        self.losing(shared, 2)
        self.assertTrue(shared.compare_and_set("n", 2, 3))
        self.losing(shared, 1)
        shared.n = 9
        self.assertEqual(self.shared().n, 9)

    def test_lost_and_overwritten(self):
        """that holds though others have changed the field since, and so does the opposite"""
        shared, other = self.shared(), self.shared()
        for changes in (1, 2, 40):
            shared.n = 1
            self.meanwhile = lambda: [other.set("n", 5 + i) for i in range(changes)]
            self.losing(shared, 1)
            self.assertTrue(shared.compare_and_set("n", 1, 2))
            self.assertEqual(shared.n, 4 + changes)
        gateway = shared._gateway
        ask_once = type(gateway).ask_once

        def never_done(path, body, timeout):
            gateway.ask_once = lambda *args: ask_once(gateway, *args)
            for i in range(30):
                other.n = i
            raise Lost("by the test, before it arrived")

        shared.n = 1
        shared.compare_and_set("n", -1, 0)
        now = shared._read("n", shared._deadline(None))
        gateway.ask_once = never_done
        done, now = shared._swap("n", now, 77, None, shared._deadline(None))
        self.assertFalse(done)
        self.assertEqual(now.value, 29)

    def test_not_known(self):
        """without any answer a change may have been done, and without a connection it was not"""
        shared = self.shared(timeout=0.5)
        shared.n = 1
        self.losing(shared, 10**6)
        with self.assertRaises(MayHaveRun):
            shared.n = 2
        self.assertEqual(shared.n, 2)
        # What is refused now may have been done before.
        ask_once, left = type(shared._gateway).ask_once, [1]

        def lost_then_full(path, body, timeout):
            if path != "/v3/kv/txn":
                return ask_once(shared._gateway, path, body, timeout)
            if not left:
                raise FullError("by the test")
            left.pop()
            raise Lost("by the test")

        shared._gateway.ask_once = lost_then_full
        with self.assertRaises(MayHaveRun):
            shared.n = 3
        with self.assertRaises(FullError):
            shared.n = 3
        with tempfile.TemporaryDirectory() as pool:
            with self.assertRaises(Unavailable):
                Shared("x", pool)
            make_key(pool)
            with self.assertRaises(Unavailable):
                Shared("x", pool, timeout=0.2).x = 1
            # Another pool's key: neither side trusts the other.
            shutil.copy(os.path.join(self.dir, "shared.json"), pool)
            with self.assertRaises(Unavailable):
                Shared("x", pool, timeout=0.5).x = 1

    def test_watch(self):
        """a watch gives every value in order, also across the end of its connection"""
        shared, seen = self.shared(), []
        ready = threading.Event()

        def look():
            for value in self.shared().watch("x", timeout=20):
                seen.append(value)
                ready.set()
                if value == 300:
                    return

        thread = threading.Thread(target=look)
        thread.start()
        self.assertTrue(ready.wait(20))
        for value in range(1, 301):
            shared.x = value
            if value == 150:
                victim = self.servers.clients.index(int(shared._gateway.endpoint().split(":")[1]))
                self.servers.kill(victim)
            if value == 200:
                self.servers.start()
        thread.join(40)
        self.assertEqual(seen, [None] + list(range(1, 301)))
        self.assertEqual(list(shared.watch("x", timeout=0.3)), [300])

    @unittest.skipUnless(os.access(CLIENT, os.X_OK), "no client in C++")
    def test_cplusplus(self):
        """clients in C++ have the same fields, values and errors"""
        shared = self.shared()
        shared.text, shared.n = "text", 2**62
        lines = ["read n", "read never", "read text", "add text 1", "add n -1", "cas new null 5",
                 "cas new null 6", "cas new 5 -7", "write n 3", "add n 4"]
        done = subprocess.run([CLIENT, self.dir, self.id(), "10000"], input="\n".join(lines),
                              capture_output=True, text=True, timeout=40)
        wrong = "failed {} of the pool has a value of another type".format("text")
        wanted = [f"ok {2**62}", "ok null", wrong, wrong, f"ok {2**62 - 1}", "ok 1", "ok 0", "ok 1",
                  "ok 1", "ok 7"]
        self.assertEqual(done.stdout.splitlines(), wanted, done.stderr)
        self.assertEqual((shared.text, shared.n, shared.new), ("text", 7, -7))
        self.assertEqual(shared.add("n"), 8)

    @unittest.skipUnless(os.access(CLIENT, os.X_OK), "no client in C++")
    def test_cplusplus_lost_answer(self):
        """in C++ too a change whose answer is lost is done once, and known to be done or not"""
        server = Forgetful(self.dir)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        pool = tempfile.mkdtemp(prefix="bellows-test-")
        self.addCleanup(shutil.rmtree, pool)
        for name in ("key.pem", "cert.pem"):
            shutil.copy(os.path.join(self.dir, name), pool)
        with open(os.path.join(pool, "shared.json"), "w", encoding="utf-8") as file:
            json.dump({"endpoints": [f"127.0.0.1:{server.server_address[1]}"]}, file)
        shared = self.shared()

        def ask(line, milliseconds=20000, lose=1, meanwhile=lambda: None):
            server.lose, server.meanwhile = lose, meanwhile
            done = subprocess.run([CLIENT, pool, self.id(), str(milliseconds)], input=line,
                                  capture_output=True, text=True, timeout=40)
            return done.stdout.strip()

        self.assertEqual(ask("add n 1"), "ok 1")
        self.assertEqual(ask("add n 1", lose=3), "ok 2")
        self.assertEqual(ask("cas n 2 5"), "ok 1")
        self.assertEqual(shared.n, 5)
        # Others have changed it since, once or often.
        for times in (1, 40):
            shared.n = 5
            done = ask("add n 1", meanwhile=lambda: [shared.add("n", 10) for _ in range(times)])
            self.assertEqual((done, shared.n), ("ok 6", 6 + 10 * times))
        shared.n = 0
        self.assertEqual(ask("add n 1", milliseconds=300, lose=10**6), "unknown")
        self.assertEqual(shared.n, 1)

    @unittest.skipUnless(os.access(CLIENT, os.X_OK), "no client in C++")
    def test_cplusplus_lock(self):
        """a lock is one for clients in C++ and in Python, and is lost and given back alike"""
        client = subprocess.Popen([CLIENT, self.dir, self.id(), "10000"], text=True, bufsize=1,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(client.wait, 30)
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.stdin.close)
        self.addCleanup(client.send_signal, signal.SIGCONT)

        def ask(line):
            client.stdin.write(line + "\n")
            return client.stdout.readline().strip()

        shared = self.shared()
        lock = shared.lock("l", ttl=2)
        self.assertEqual(ask("lock l 0"), "ok 1")
        self.assertEqual(ask("write-locked x 1 l"), "ok 1")
        self.assertFalse(lock.acquire(timeout=2.5))  # longer than its lease, which is kept
        self.assertEqual(ask("held l"), "ok 1")
        token = int(ask("token l").split()[1])
        client.send_signal(signal.SIGSTOP)
        self.assertTrue(lock.acquire(timeout=20))
        client.send_signal(signal.SIGCONT)
        self.assertGreater(lock.token, token)
        self.assertEqual(ask("held l"), "ok 0")
        self.assertTrue(ask("write-locked x 2 l").startswith("failed the lock is not held"))
        self.assertEqual(shared.x, 1)
        self.assertEqual(ask("lock other 0"), "ok 1")
        self.assertEqual(ask("unlock l"), "ok 1")
        self.assertEqual(ask("lock l 100"), "ok 0")
        lock.release()
        self.assertEqual(ask("lock l 100"), "ok 1")
        self.assertEqual(ask("unlock l"), "ok 1")
        self.assertTrue(lock.acquire(timeout=1))
        lock.release()

    def test_lock(self):
        """a lock has one holder, its token grows, and a change with it fails once it is lost"""
        one, two = self.shared(), self.shared()
        first, second = one.lock("l", ttl=2), two.lock("l", ttl=2)
        with first:
            self.assertTrue(first.held)
            self.assertFalse(second.acquire(timeout=0.3))
            one.set("x", 1, lock=first)
            waiter = threading.Thread(target=second.acquire)
            waiter.start()
            time.sleep(2.5)  # longer than its lease, which is kept
            self.assertTrue(first.held)
            self.assertFalse(second.held)
        waiter.join(20)
        self.assertTrue(second.held)
        self.assertGreater(second.token, first.token)
        with self.assertRaises(LockLost):
            one.set("x", 2, lock=first)
        # As after a pause of this process.
        second._stop.set()
        self.assertTrue(first.acquire(timeout=20))
        with self.assertRaises(LockLost):
            two.set("x", 3, lock=second)
        self.assertFalse(second.held)
        one.set("x", 4, lock=first)
        self.assertEqual(one.x, 4)
        second.release()
        first.release()


@unittest.skipIf(SKIP, SKIP)
class Majority(unittest.TestCase):
    def test_no_majority(self):
        """a server that the others don't answer gives no value, in Python or in C++"""
        servers = serve(self.addCleanup)
        Shared("fields", servers.directory, timeout=30).x = 1
        one = servers.only(0)
        shared = Shared("fields", one, timeout=3)
        self.addCleanup(shared.close)

        def in_cplusplus():
            done = subprocess.run([CLIENT, one, "fields", "3000"], input="read x\n", text=True,
                                  capture_output=True, timeout=40)
            return done.stdout

        self.assertEqual(shared.get("x", timeout=30), 1)
        if os.access(CLIENT, os.X_OK):
            self.assertEqual(in_cplusplus(), "ok 1\n")
        for index in (1, 2):
            servers.signal(index, signal.SIGSTOP)
        with self.assertRaises(Unavailable):
            shared.get("x")
        if os.access(CLIENT, os.X_OK):
            self.assertTrue(in_cplusplus().startswith("failed the pool's etcd does not answer"))

# SPDX-License-Identifier: Apache-2.0
"""The programs that run a pool's etcd: their seats, moves, lost data and copies."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

from etcd_support import NO_ETCD, eventually, make_key
from support import missing

PROGRAM = os.path.join(os.environ.get("BELLOWS_BUILDDIR", ""), "pool/bellows-pool-shared")
SKIP = NO_ETCD or missing("msgpack") or (
    None if os.access(PROGRAM, os.X_OK) and shutil.which("etcdctl") else "no etcdctl, or no program"
)
if not SKIP:
    from bellows.pool import Shared, Unavailable


@unittest.skipIf(SKIP, SKIP)
class SharedServers(unittest.TestCase):
    def setUp(self):
        self.pool = tempfile.mkdtemp(prefix="bellows-test-")
        self.addCleanup(shutil.rmtree, self.pool)
        make_key(self.pool)
        subprocess.run([PROGRAM, "--make", "3", self.pool], check=True, timeout=30)
        self.programs = []
        self.addCleanup(self.kill)
        self.shared = None

    def start(self, count, host="localhost", copies_each=600):
        for _ in range(count):
            with open(self.path("log"), "ab") as log:
                command = [PROGRAM, self.pool, host, str(copies_each)]
                self.programs.append(subprocess.Popen(command, stdout=log, stderr=log))

    def kill(self, which=None):
        for program in [self.programs[which]] if which is not None else self.programs:
            program.kill()
            program.wait(timeout=30)

    def path(self, *names):
        return os.path.join(self.pool, *names)

    def log(self):
        with open(self.path("log"), encoding="utf-8", errors="replace") as file:
            return file.read()[-3000:]

    def field(self):
        """The field, as a client sees it that has just come."""
        client = Shared("x", self.pool, timeout=30)
        try:
            return client.field
        except Unavailable as error:
            self.fail(f"{error}\n{self.log()}")
        finally:
            client.close()

    def set(self, value):
        client = Shared("x", self.pool, timeout=30)
        client.field = value
        client.close()

    def children(self, which):
        parent = self.programs[which].pid
        try:
            with open(f"/proc/{parent}/task/{parent}/children", encoding="utf-8") as file:
                return file.read().split()
        except OSError:
            return []

    def seat_of(self, which):
        """The seat that a program holds, by the data directory of its etcd."""
        for child in self.children(which):
            with open(f"/proc/{child}/cmdline", encoding="utf-8") as file:
                for word in file.read().split("\0"):
                    if word.startswith("--name=m"):
                        return int(word[len("--name=m"):])
        return None

    def endpoints(self):
        try:
            with open(self.path("shared.json"), encoding="utf-8") as file:
                return json.load(file)["endpoints"]
        except OSError:
            return []

    def test_all_restarted(self):
        """all servers may be killed and start again elsewhere: nothing acknowledged is lost"""
        self.start(3)
        eventually(self.endpoints)
        self.set("kept")
        before = self.endpoints()
        self.kill()
        self.start(3)
        eventually(lambda: set(self.endpoints()).isdisjoint(before))
        self.assertEqual(self.field(), "kept")
        with open(self.path("shared.json"), encoding="utf-8") as file:
            self.assertEqual(len(json.load(file)["endpoints"]), 3)
        for name in ("shared", "shared/m0/data"):
            self.assertEqual(os.stat(self.path(name)).st_mode & 0o777, 0o700)

    def test_spare(self):
        """a program that has no seat takes that of one that was killed"""
        self.start(4)
        eventually(lambda: sum(self.seat_of(i) is not None for i in range(4)) == 3)
        spare = next(i for i in range(4) if self.seat_of(i) is None)
        victim = (spare + 1) % 4
        seat = self.seat_of(victim)
        self.set(1)
        self.kill(victim)
        eventually(lambda: self.seat_of(spare) == seat)
        # With another down too it is needed.
        other = next(i for i in range(4) if i not in (spare, victim))
        self.programs[other].send_signal(signal.SIGTERM)
        self.programs[other].wait(timeout=30)
        self.assertEqual(self.field(), 1)

    def test_data_lost(self):
        """a server whose data is gone joins the others anew, and then is as good as they are"""
        self.start(3)
        eventually(self.endpoints)
        self.set("old")
        victim = 1
        seat = self.seat_of(victim)
        self.kill(victim)
        shutil.rmtree(self.path("shared", f"m{seat}", "data"))
        self.set("new")
        self.start(1)
        eventually(lambda: "begins anew" in self.log())
        eventually(lambda: os.path.isdir(self.path("shared", f"m{seat}", "data/member/snap")))
        self.assertEqual(self.field(), "new")
        # It alone and one of the others are a majority that knows all.
        self.kill(0)
        self.assertEqual(self.field(), "new")
        self.set("newer")
        self.assertEqual(self.field(), "newer")

    def test_all_data_lost(self):
        """when the data of all is gone they begin with a copy; with some of it they wait"""
        self.start(3, copies_each=2)
        eventually(self.endpoints)
        self.set("copied")
        copy = self.path("shared", "snapshot.db")
        eventually(lambda: os.path.exists(copy))
        made = os.stat(copy).st_mtime_ns
        eventually(lambda: os.stat(copy).st_mtime_ns != made)
        self.kill()
        for seat in (1, 2):
            shutil.rmtree(self.path("shared", f"m{seat}", "data"))
        self.start(3)
        eventually(lambda: self.log().count("waits until enough others run") >= 2)
        with self.assertRaises(Unavailable):
            Shared("x", self.pool, timeout=1).get("field")
        self.kill()
        shutil.rmtree(self.path("shared", "m0", "data"))
        self.start(3)
        eventually(lambda: self.log().count("begins with the copy") >= 3)
        self.assertEqual(self.field(), "copied")
        eventually(lambda: not os.path.exists(self.path("shared", "restoring")))

    def test_end(self):
        """at its end a server makes a copy, and etcd ends with it"""
        self.start(3)
        eventually(self.endpoints)
        self.set(1)
        etcd = f"/proc/{self.children(0)[0]}"
        self.assertTrue(os.path.exists(etcd))
        self.programs[0].send_signal(signal.SIGTERM)
        self.assertEqual(self.programs[0].wait(timeout=30), 0)
        self.assertTrue(os.path.exists(self.path("shared", "snapshot.db")))
        self.assertFalse(os.path.exists(etcd))

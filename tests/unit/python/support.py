# SPDX-License-Identifier: Apache-2.0
"""For the tests of the package: checkpoint directories, and programs of several ranks."""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import bellows

LONG = bool(os.environ.get("BELLOWS_LONG"))
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(bellows.__file__)))
SECONDS = 40 * int(os.environ.get("BELLOWS_PATIENCE", "1"))


class TestCase(unittest.TestCase):
    """Each test has a fresh directory, and waits at its end for the agent to leave."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="bellows-test-")
        self.addCleanup(shutil.rmtree, self.dir)

    def checkpoint(self, **more):
        return bellows.Checkpoint(dir=os.path.join(self.dir, "ckpt"), **more)

    def path(self, name):
        return os.path.join(self.dir, name)

    def eventually(self, holds):
        deadline = time.monotonic() + SECONDS
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)

    def program(self, text, *arguments, status=0, **environment):
        """Runs a Python program; what it printed, and what it said besides."""
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text), *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=self.dir,
            env={**os.environ, "PYTHONPATH": PACKAGE, **environment},
        )
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout.strip(), done.stderr

    def ranks(self, world, program, *arguments):
        """Runs a Python program as so many ranks; what each printed, in their order.

        In it, `ckpt` is a Checkpoint and `arguments` are the strings.
        """
        text = PROLOGUE + textwrap.dedent(program)
        ranks = []
        for rank in range(world):
            command = [sys.executable, "-c", text, self.dir, str(rank), str(world), *arguments]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            ranks.append(subprocess.Popen(command, **pipes))
        deadline = time.monotonic() + SECONDS
        said = []
        for rank, process in enumerate(ranks):
            try:
                out, err = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                for one in ranks:
                    one.kill()
                out, err = process.communicate()
                self.fail(f"rank {rank} of {world} hung; it said: {out} {err}")
            self.assertEqual(process.returncode, 0, f"rank {rank} of {world}: {err}")
            said.append(out.strip())
        return said


PROLOGUE = """
import os, sys
import bellows
dir, rank, world, *arguments = sys.argv[1:]
rank, world = int(rank), int(world)
ckpt = bellows.Checkpoint(dir=os.path.join(dir, "ckpt"), rank=rank, world=world)
"""


def missing(*modules):
    """Why tests that need these modules are skipped; "" when they are there."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            return f"there is no {module}"
    return ""

# SPDX-License-Identifier: Apache-2.0
"""A bellows-modeld with files of its own, for the tests of bellows.models."""

import os
import signal
import subprocess

from support import SECONDS, TestCase, missing

import bellows.models.files

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ.get("BELLOWS_BUILDDIR") or os.path.join(HERE, "../../../build")
#: What has safetensors where it is not installed.
PLAIN = os.path.join(HERE, "plain") if missing("safetensors") else ""


class StoreTestCase(TestCase):
    """The store of tenant "a", whose socket is in the environment."""

    def setUp(self):
        super().setUp()
        self.options = []
        self.daemon = None
        self.socket_words = ""  #: more of its option
        before = dict(os.environ)
        os.environ["BELLOWS_MODEL_SOCKET"] = self.path("socket")
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        self.addCleanup(self.stop_store)

    def write(self, name, tensors, metadata=None):
        """A safetensors file; `tensors` are (name, type, shape, bytes)."""
        path = self.path(name)
        bellows.models.files.write_file(path, tensors, metadata or {})
        return path

    def add(self, name, tensors, metadata=None):
        path = self.write(f"{name}.safetensors", tensors, metadata)
        self.options.append(f"--model={name}={path},tenant=a")
        return path

    def start_store(self, loader=None):
        """`loader`: a shell script instead of the loader; $LOADER is the real one."""
        helpers = os.path.abspath(os.path.join(BUILD, "modelstore"))
        if loader is not None:
            real, helpers = helpers, self.path("helpers")
            os.mkdir(helpers)
            os.symlink(f"{real}/bellows-model-keeper", f"{helpers}/bellows-model-keeper")
            with open(f"{helpers}/bellows-model-loader", "w", encoding="ascii") as file:
                file.write(f"#!/bin/sh\nLOADER={real}/bellows-model-loader\ncd {self.dir}\n{loader}\n")
            os.chmod(f"{helpers}/bellows-model-loader", 0o755)
        self.log = open(self.path("log"), "w+", encoding="utf-8")
        self.addCleanup(self.log.close)
        self.daemon = subprocess.Popen(
            [
                # Whatever ends the test.
                "setpriv",
                "--pdeathsig=KILL",
                os.path.join(BUILD, "modelstore/bellows-modeld"),
                f"--run={self.path('run')}",
                "--budget=64M",
                "--alone=1",
                "--small-pages",
                f"--helpers={helpers}",
                f"--socket={self.path('socket')},tenant=a{self.socket_words}",
                *self.options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=self.log,
        )
        self.eventually(lambda: "is ready" in self.said())

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def stop_store(self):
        """Its keeper leaves after a second without it."""
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGKILL)
            self.daemon.wait(timeout=SECONDS)


def mapped_models():
    """How many models this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        starts = {line.split("-")[0] for line in maps if "/memfd:" in line and " 00000000 " in line}
    return len(starts)

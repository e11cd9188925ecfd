# SPDX-License-Identifier: Apache-2.0
import os
import signal
import struct
import subprocess
import textwrap
import threading
import time
import unittest

import bellows
from bellows import models
from model_support import StoreTestCase, mapped_models
from support import TestCase, missing

NO_NUMPY = missing("numpy")
if not NO_NUMPY:
    import numpy as np

FLOATS = struct.pack("<6f", *range(6))
TENSORS = [
    ("b", "I64", (2,), struct.pack("<2q", 7, 8)),
    ("h", "BF16", (2,), b"\x80\x3f\x00\x40"),
    ("none", "F32", (0, 3), b""),
    ("one", "F64", (), struct.pack("<d", 0.5)),
    ("q", "F8_E5M2", (4,), b"\x3c" * 4),
    ("w", "F32", (2, 3), FLOATS),
]


class Lent(StoreTestCase):
    def setUp(self):
        super().setUp()
        self.file = self.add("m", TENSORS)

    @unittest.skipIf(NO_NUMPY, NO_NUMPY)
    def test_arrays(self):
        """a model's arrays are what its file has, and can only be read"""
        self.start_store()
        with models.open("m", framework="numpy") as model:
            self.assertEqual(list(model), [name for name, *_ in TENSORS])
            self.assertEqual(len(model), len(TENSORS))
            self.assertTrue("w" in model and "v" not in model and "w\0" not in model)
            np.testing.assert_array_equal(model["w"], np.arange(6, dtype="f4").reshape(2, 3))
            self.assertEqual(model["one"].shape, ())
            self.assertEqual(model["none"].shape, (0, 3))
            self.assertEqual(model.info("h")[:3], ("BF16", (2,), 4))
            self.assertEqual(len(model.digest), 64)
            for writing in ("model['w'][0, 0] = 1", "model['w'].flags.writeable = True"):
                with self.assertRaises(ValueError):
                    exec(writing)
            with self.assertRaisesRegex(models.InvalidError, "tensor h .* BF16"):
                model.array("h")
            with self.assertRaisesRegex(models.NotFoundError, "model m has no tensor v"):
                model["v"]
        again = models.open("sha256:" + model.digest, framework="numpy")
        self.assertEqual(again["b"].tolist(), [7, 8])
        self.assertEqual(models.open("file:" + self.file, framework="numpy")["b"].tolist(), [7, 8])

    @unittest.skipIf(NO_NUMPY, NO_NUMPY)
    def test_own_reader(self):
        """the store and a plain reader of the file agree"""
        path = self.add("n", [tensor for tensor in TENSORS if tensor[1] not in ("BF16", "F8_E5M2")])
        self.start_store()
        for name, array in models.read_file(path).items():
            lent = models.open("n", framework="numpy")[name]
            np.testing.assert_array_equal(lent, array)
            self.assertEqual(lent.dtype, array.dtype)
            self.assertTrue(array.flags.writeable or array.size == 0)

    @unittest.skipIf(NO_NUMPY, NO_NUMPY)
    def test_lifetime(self):
        """memory stays as long as an array of it, and no longer"""
        self.start_store()
        with models.open("m", framework="numpy") as model:
            part = model["w"][1:]
            self.assertEqual(mapped_models(), 1)
        self.assertTrue(model.closed)
        with self.assertRaisesRegex(models.InvalidError, "model m is closed"):
            model["w"]
        self.assertEqual(part.tolist(), [[3, 4, 5]])
        self.assertEqual(mapped_models(), 1)
        del part, model
        self.assertEqual(mapped_models(), 0)

    @unittest.skipIf(NO_NUMPY, NO_NUMPY)
    def test_fork_and_end(self):
        """arrays outlive a close in a forked process, and the interpreter's end finds all in order"""
        self.start_store()
        out, err = self.program(
            """
            import atexit, os
            from bellows import models
            model = models.open("m", framework="numpy")
            class Last:
                def __init__(self):
                    self.itself, self.array = self, model["w"]
                def __del__(self):
                    os.write(1, b"%d" % self.array.sum())
            keep = Last()
            atexit.register(lambda: os.write(1, b"%d " % keep.array.sum()))
            child = os.fork()
            if child == 0:
                model.close()
                os._exit(int(keep.array.sum()))
            status = os.waitpid(child, 0)[1]
            os.write(1, b"%d " % os.WEXITSTATUS(status))
            """
        )
        self.assertEqual((out, err), ("15 15 15", ""))

    @unittest.skipIf(NO_NUMPY, NO_NUMPY)
    def test_threads(self):
        """many threads may open, read and close"""
        self.start_store()
        sums = []

        def work():
            for _ in range(50):
                with models.open("m", framework="numpy") as model:
                    sums.append(model["w"].sum() + len(list(model)))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sums, [21.0] * 400)
        self.assertEqual(mapped_models(), 0)

    @unittest.skipIf(NO_NUMPY, NO_NUMPY)
    def test_writable(self):
        """what is written to a writable model is its own"""
        self.start_store()
        one, other = (models.open("m", framework="numpy", writable=True) for _ in range(2))
        one["w"][:] = 9
        self.assertEqual(one["w"].tolist(), [[9, 9, 9], [9, 9, 9]])
        self.assertEqual(other["w"].sum(), 15)
        self.assertEqual(models.open("m", framework="numpy")["w"].sum(), 15)

    def test_errors(self):
        """errors are sentences of the store, and kinds of Python's"""
        self.start_store()
        with self.assertRaisesRegex(models.NotFoundError, "^model x: there is no such model$") as said:
            models.open("x")
        self.assertTrue(isinstance(said.exception, (bellows.Error, LookupError)))
        self.assertEqual(said.exception.code, -2)
        with self.assertRaisesRegex(models.NotFoundError, "there is no such model"):
            models.prefetch("x")
        for wrong in ("../x", "", "a\0b"):
            with self.assertRaises(models.InvalidError):
                models.open(wrong)
        with self.assertRaisesRegex(models.InvalidError, "framework"):
            models.open("m", framework="tf")
        with self.assertRaisesRegex(models.UnavailableError, "/nowhere"):
            models.open("m", socket="/nowhere")
        codes = [vars(models)[name].code for name in models.__all__ if name.endswith("Error")]
        self.assertEqual(sorted(set(codes)), list(range(-7, 1)))

    def test_no_library(self):
        """without the library, the first use says what to do"""
        out, _ = self.program(
            """
            import bellows
            try: bellows.models.open("m")
            except bellows.Error as error: print(error)
            """,
            BELLOWS_MODEL_LIBRARY="/nowhere/libbellows_model.so.0",
        )
        self.assertIn("name the libbellows_model.so.0 that comes with this package in", out)


class Waits(StoreTestCase):
    def setUp(self):
        super().setUp()
        self.add("m", TENSORS)

    def test_progress(self):
        """progress comes in the thread that waits, and ends with all"""
        told = []

        def progress(done, total):
            told.append((done, total, threading.current_thread()))
            with open(self.path("go"), "w"):
                pass

        self.start_store("while [ ! -e go ]; do sleep 0.02; done\nexec $LOADER")
        models.open("m", progress=progress).close()
        self.assertEqual(told[0][:2], (0, 0))
        self.assertTrue(told[-1][0] == told[-1][1] > 0)
        self.assertEqual({thread for *_, thread in told}, {threading.current_thread()})
        told.clear()
        models.open("m", progress=progress).close()
        self.assertEqual(told, [])
        self.assertEqual(self.said().count("loaded "), 1)

    def test_progress_raises(self):
        """what progress raises ends the wait"""
        self.start_store("exec sleep 1000")

        def progress(done, total):
            raise KeyError("enough")

        begin = time.monotonic()
        with self.assertRaisesRegex(KeyError, "enough"):
            models.open("m", progress=progress)
        self.assertLess(time.monotonic() - begin, 30)

    def test_signal(self):
        """a signal's handler can end a wait"""
        self.start_store("echo > started; exec sleep 1000")

        def handler(*_):
            raise InterruptedError("enough")

        # Not SIGINT, which is ignored where the tests run in the background.
        before = signal.signal(signal.SIGUSR1, handler)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        threading.Thread(target=self.interrupt, daemon=True).start()
        with self.assertRaisesRegex(InterruptedError, "enough"):
            models.open("m")

    def interrupt(self):
        self.eventually(lambda: os.path.exists(self.path("started")))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def test_wait(self):
        """a wait has a limit"""
        self.start_store("exec sleep 1000")
        with self.assertRaisesRegex(models.UnavailableError, "not loaded in time"):
            models.open("m", wait=0.4)


class Files(TestCase):
    def test_nonsense(self):
        """a file that is none is refused with a sentence"""
        path = os.path.join(self.dir, "f")
        entry = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,%s]}}'
        for content in (
            b"",
            b"\1",
            b"\xff" * 16,
            (2).to_bytes(8, "little") + b"[]",
            (3).to_bytes(8, "little") + b"{1}",
            len(entry % b"-1").to_bytes(8, "little") + entry % b"-1",
            len(entry % b"9").to_bytes(8, "little") + entry % b"9" + b"x",
            (8).to_bytes(8, "little") + b'{"a": 5}',
        ):
            with open(path, "wb") as file:
                file.write(content)
            with self.assertRaises(models.CorruptError, msg=content):
                bellows.models.files.read_header(path)
        os.unlink(path)
        os.mkfifo(path)
        with self.assertRaises(models.InvalidError):
            bellows.models.files.read_header(path)
class OnGpu(StoreTestCase):
    """With the driver of tests/gpu/fake_driver.c, whose GPU is memory that a program can read."""

    def setUp(self):
        super().setUp()
        self.add("m", TENSORS)
        source = os.path.join(os.path.dirname(__file__), "../../gpu/fake_driver.c")
        library = self.path("libcuda.so.1")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
        self.options += [f"--gpu-driver={library}", "--gpu-memory=16M"]

    def run_on_gpu(self, text):
        return self.program(
            f"""
import ctypes
from bellows import models
{textwrap.dedent(text)}
""",
            LD_LIBRARY_PATH=self.dir,
        )

    def test_arrays(self):
        """a model on a GPU gives arrays that lie there, as long as they are in use"""
        self.socket_words = ",gpus=0000:3b:00.0"
        self.start_store()
        out, err = self.run_on_gpu(
            """
            model = models.open("m", device="cuda:0")
            about = model.gpu_array("w").__cuda_array_interface__
            print(about["shape"], about["typestr"], about["version"], model.gpu, len(model))
            part = model.gpu_array("b")
            print(model.gpu_array("h").__cuda_array_interface__["typestr"], model.info("h").dtype)
            model.close()
            address = part.__cuda_array_interface__["data"][0]
            print(list((ctypes.c_int64 * 2).from_address(address)))
            """
        )
        self.assertEqual((out, err), ("(2, 3) <f4 3 0 6\n|u1 BF16\n[7, 8]", ""))
        self.assertEqual(self.said().count("copied "), 1)

    def test_refusals(self):
        """what a model on a GPU can't be is said"""
        self.socket_words = ",gpus=0000:86:00.0"
        self.start_store()
        out, err = self.run_on_gpu(
            """
            for device, more in (("cuda", {}), ("cuda:7", {}), ("cuda:0", {"writable": True}),
                                 ("tpu", {})):
                try:
                    models.open("m", device=device, **more)
                except models.ModelError as error:
                    print(type(error).__name__, error)
            """
        )
        lines = out.splitlines()
        self.assertEqual(err, "")
        self.assertRegex(lines[0], "^NotFoundError .* not for this job on this GPU")
        self.assertRegex(lines[1], "^InvalidError .* no GPU 7")
        self.assertRegex(lines[2], "^InvalidError .* can only be read")
        self.assertRegex(lines[3], '^InvalidError device is .tpu.: it is "cpu"')
        with models.open("m", device="cpu", framework="numpy") as model:
            with self.assertRaisesRegex(models.InvalidError, "is on no GPU"):
                model.gpu_array("w")
        with self.assertRaisesRegex(models.UnavailableError, "has not loaded libcuda.so.1"):
            models.open("m", device="cuda:0")



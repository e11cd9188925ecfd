# SPDX-License-Identifier: Apache-2.0
import array
import ctypes
import pathlib
import unittest

import bellows
from support import LONG, TestCase, missing

NO_NUMPY = missing("numpy")
if not NO_NUMPY:
    import numpy as np

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 float32 float64 complex64 complex128 V1"
).split()
SHAPES = [(), (1,), (0,), (5,), (3, 0, 2), (2, 3, 4), (1, 1, 1, 2, 1, 1, 3, 1)]


def random_array(rng, dtype, shape):
    length = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    content = rng.integers(0, 2 if dtype == "bool" else 256, length, dtype="u1")
    return content.view(dtype).reshape(shape).copy()


@unittest.skipIf(NO_NUMPY, NO_NUMPY)
class Numpy(TestCase):
    def test_round_trip(self):
        """arrays of numpy of all types and shapes come back, bit for bit"""
        rng = np.random.default_rng(1)
        arrays = {f"{d}/{i}": random_array(rng, d, s) for d in DTYPES for i, s in enumerate(SHAPES)}
        wanted = {name: a.tobytes() for name, a in arrays.items()}
        with self.checkpoint() as ckpt:
            for name, a in arrays.items():
                ckpt.register(name, a)
            ckpt.save(7, wait=True)
        with self.checkpoint() as ckpt:
            for name in arrays:
                arrays[name] = np.zeros_like(arrays[name])
                ckpt.register(name, arrays[name])
            self.assertEqual(ckpt.restore(), 7)
        for name, a in arrays.items():
            self.assertEqual(a.tobytes(), wanted[name], name)

    def test_changed_after_save(self):
        """an array may change as soon as an asynchronous save returns"""
        a = np.full(1 << 20, 1.0)
        with self.checkpoint() as ckpt:
            ckpt.register("a", a)
            for step in range(5):
                a[:] = step
                ckpt.save(step)
                a[:] = -1
        with self.checkpoint() as ckpt:
            ckpt.register("a", a)
            self.assertEqual(ckpt.restore(), 4)
        self.assertTrue((a == 4).all())

    def test_refused(self):
        """arrays that cannot be saved are refused with a sentence"""
        read_only = np.zeros(3)
        read_only.flags.writeable = False
        cases = [
            (np.zeros((4, 4))[:, :2], "C order"),
            (np.zeros(3, dtype=">f4"), "byte order"),
            (np.zeros(3, dtype="U4"), "cannot be saved"),
            (np.zeros(3, dtype=object), "cannot be saved"),
            (read_only, "read-only"),
            ([1.0], "a list is not an array"),
            (3, "a int is not an array"),
        ]
        with self.checkpoint() as ckpt:
            for a, words in cases:
                with self.assertRaisesRegex(bellows.InvalidError, f"array a: .*{words}"):
                    ckpt.register("a", a)
            with self.assertRaisesRegex(bellows.InvalidError, "axis 1 does not exist"):
                ckpt.register("a", np.zeros(3), sharded=bellows.Shard(1, 0, 3))
            with self.assertRaisesRegex(bellows.InvalidError, "extend past the 4"):
                ckpt.register("a", np.zeros(3), sharded=bellows.Shard(0, 2, 4))
            with self.assertRaisesRegex(bellows.InvalidError, "package's own"):
                ckpt.register("bellows/a", np.zeros(3))
            with self.assertRaisesRegex(bellows.InvalidError, "without spaces"):
                ckpt.register("a b", np.zeros(3))
            with self.assertRaisesRegex(bellows.InvalidError, "not registered"):
                ckpt.unregister("a")

    def test_resize(self):
        """what N ranks saved, M ranks restore, along any axis, for N and M up to 4 (long: 8)"""
        program = """
        import numpy as np
        def part(total, r, w):  # uneven, and empty for the last rank when there are enough
            edges = [total * i * i // (w * w) for i in range(w + 1)] if w < 3 else \\
                [total * i // (w - 1) for i in range(w)] + [total]
            return edges[r], edges[r + 1]
        whole = np.arange(5 * 17 * 3, dtype="f4").reshape(5, 17, 3)
        b, e = part(17, rank, world)
        mine = whole[:, b:e].copy()
        same = np.arange(300000, dtype="i8")  # large enough to be stored in pieces
        own = np.full(world, rank)
        step = int(arguments[1])
        if arguments[0] == "restore":
            mine[:] = 0
            same[:] = 0
            own = np.full(int(arguments[2]), -1)
        ckpt.register("mine", mine, sharded=bellows.Shard(1, b, 17))
        ckpt.register("same", same)
        ckpt.register("own", own, per_rank=True)
        if arguments[0] == "restore":
            assert ckpt.restore() == step
            assert (mine == whole[:, b:e]).all(), mine
            assert (same == np.arange(300000)).all()
            print(own[0])
        else:
            ckpt.save(step, wait=True)
        ckpt.close()
        """
        worlds = range(1, 9 if LONG else 5)
        for step, saved in enumerate(worlds):
            self.ranks(saved, program, "save", str(step))
            for world in worlds:
                with self.subTest(saved=saved, restored=world):
                    said = self.ranks(world, program, "restore", str(step), str(saved))
                    wanted = [str(r) if r < saved else "-1" for r in range(world)]
                    self.assertEqual(said, wanted)


@unittest.skipIf(missing("numpy", "h5py"), "there is no h5py")
class Hdf5(TestCase):
    def test_h5py(self):
        """h5py reads whole arrays and numbers by the names that the manual says"""
        import h5py

        program = """
        import numpy as np
        ckpt.register("part", np.arange(6, dtype="f4").reshape(2, 3) + 6 * rank,
                      sharded=bellows.Shard(0, 2 * rank, 4))
        ckpt.register("raw", np.arange(3, dtype="u1").view("V1"))
        ckpt.track(state={"odd key": {"yes": True, "half": 0.5, "list": np.ones(3, dtype="c8")}})
        ckpt.save(3, wait=True)
        ckpt.close()
        """
        self.ranks(2, program)
        with h5py.File(next(pathlib.Path(self.dir).glob("ckpt/step-*3/whole.h5"))) as whole:
            wanted = np.arange(12, dtype="f4").reshape(4, 3)
            self.assertTrue((whole["arrays/part"][()] == wanted).all())
            self.assertEqual(whole["arrays/raw"][()].tobytes(), bytes(range(3)))
            read = whole["arrays/state/odd%20key/list"][()]
            self.assertEqual((read.dtype, list(read)), ("c8", [1, 1, 1]))
        shard = next(pathlib.Path(self.dir).glob("ckpt/step-*3/shard-00000-of-00002.h5"))
        with h5py.File(shard) as file:
            values = file["values"].attrs
            self.assertEqual(values["state/odd%20key/half"], 0.5)
            self.assertEqual(values["state/odd%20key/yes"], True)


class Buffers(TestCase):
    def test_round_trip(self):
        """bytearrays, array.array and ctypes arrays need no numpy"""

        def buffers():
            return {
                "bytes": bytearray(5),
                "floats": array.array("d", [0.0] * 3),
                "longs": array.array("q", [0] * 4),
                "ctypes": (ctypes.c_uint16 * 6)(),
                "part": memoryview(bytearray(9))[2:6],
            }

        saved = buffers()
        for buffer in saved.values():
            memoryview(buffer).cast("B")[:] = bytes(range(1, memoryview(buffer).nbytes + 1))
        for action in ("save", "restore"):
            restored = buffers()
            with self.checkpoint() as ckpt:
                for name, buffer in (saved if action == "save" else restored).items():
                    ckpt.register(name, buffer)
                if action == "save":
                    ckpt.save(1, wait=True)
                else:
                    self.assertEqual(ckpt.restore(), 1)
        for name, buffer in saved.items():
            self.assertEqual(bytes(restored[name]), bytes(buffer), name)

    def test_refused(self):
        """buffers that cannot be restored into are refused"""
        with self.checkpoint() as ckpt:
            for buffer in (b"abc", memoryview(bytearray(9))[::2], memoryview(b"x")):
                with self.assertRaisesRegex(bellows.InvalidError, "writable"):
                    ckpt.register("a", buffer)
            grown = bytearray(3)
            ckpt.register("a", grown)
            with self.assertRaises(BufferError):
                grown.append(1)
            ckpt.unregister("a")
            grown.append(1)


if __name__ == "__main__":
    unittest.main()

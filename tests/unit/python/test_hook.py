# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import signal
import struct
import subprocess
import sys
import unittest

import hook_files
from model_support import PLAIN, StoreTestCase
from support import PACKAGE, SECONDS, missing

NO_TORCH = missing("torch", "numpy")
HERE = os.path.dirname(os.path.abspath(__file__))

@unittest.skipIf(NO_TORCH, NO_TORCH)
class Hook(StoreTestCase):
    def setUp(self):
        super().setUp()
        hook_files.write_all(self.dir)
        for name in ("a", "half", "parts"):
            path = self.path(name if name == "parts" else f"{name}.safetensors")
            self.options.append(f"--model={name}={path},tenant=a")

    def run_program(self, program, *arguments, site=True, **environment):
        """What a program prints, and what it says besides, with our sitecustomize in its path."""
        places = [PLAIN, os.path.join(PACKAGE, "bellows/site") if site else "", PACKAGE]
        done = subprocess.run(
            [sys.executable, *program, *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(place for place in places if place),
                **environment,
            },
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr

    def test_same(self):
        """a program prints the same with the hook, and gets all files from the store"""
        program = [os.path.join(HERE, "hook_program.py"), self.dir]
        without, _ = self.run_program(program)
        # There is no store yet: all is as if there were no hook.
        alone, err = self.run_program(program, BELLOWS_MODELS="verbose")
        self.assertEqual(alone, without)
        self.assertNotIn("comes from the model store", err)
        self.start_store()
        out, err = self.run_program(program, BELLOWS_MODELS="verbose")
        self.assertEqual(out, without)
        lines = [line for line in err.splitlines() if "is read as usual" in line]
        self.assertEqual(len(lines), 2, err)  # what is absent, and the folder
        for name in ("a", "half", "parts/model-00001-of-00002", "parts/model-00002-of-00002"):
            self.assertIn(f"{name}.safetensors comes from the model store", err)
        self.assertEqual(self.said().count("loaded "), 3)
        self.assertEqual(self.run_program(program, BELLOWS_MODELS="on"), (without, ""))

    def test_changed_file(self):
        """a file that was changed since it was loaded is read as it is now"""
        self.start_store()
        program = ["-c", "import sys, safetensors.torch as s; print(s.load_file(sys.argv[1])['w'])"]
        file = self.path("a.safetensors")
        out, err = self.run_program(program, file, BELLOWS_MODELS="verbose")
        self.assertIn("comes from the model store", err)
        self.write("a.safetensors", [("w", "F32", (1,), struct.pack("<f", 42))])
        out, err = self.run_program(program, file, BELLOWS_MODELS="verbose")
        self.assertEqual(out, "tensor([42.])\n")
        self.assertIn("there is no such model", err)

    def test_shares_memory(self):
        """two programs share the pages until they write to them, and parts share one mapping"""
        self.start_store()
        text = """
import os, re, sys, safetensors.torch as s
def private():
    with open("/proc/self/smaps") as f: text = f.read()
    maps = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", text)
    maps = [m for m in maps if "/memfd:" in m.partition("\\n")[0]]
    return len(maps), sum(int(n) for m in maps for n in re.findall(r"Anonymous: +(\\d+)", m))
x = s.load_file(sys.argv[1] + "/parts/model-00001-of-00002.safetensors")["x"]
y = s.load_file(sys.argv[1] + "/parts/model-00002-of-00002.safetensors")["y"]
x.sum(), y.sum()
print(*private()); x.add_(1); print(*private())
again = s.load_file(sys.argv[1] + "/parts/model-00001-of-00002.safetensors")["x"]
print(again.sum().item(), private()[0])
del x, y, again; print(private()[0])
"""
        out, _ = self.run_program(["-c", text], self.dir, BELLOWS_MODELS="on")
        self.assertEqual(out.split(), "1 0 1 4 15.0 2 0".split())

    def test_off(self):
        """without the variable nothing is imported, and nothing is changed"""
        text = "import sys; print([m for m in sys.modules if 'bellows' in m], len(sys.meta_path))"
        for value in ({}, {"BELLOWS_MODELS": ""}, {"BELLOWS_MODELS": "off"}):
            out, _ = self.run_program(["-c", text], **value)
            self.assertTrue(out.startswith("[] "), out)
        self.assertEqual(out, self.run_program(["-c", text], site=False)[0])
        out, _ = self.run_program(["-c", text], BELLOWS_MODELS="on")
        self.assertTrue(out.startswith("['bellows_startup'] "), out)

    def test_pth(self):
        """bellows.pth has the same effect where it lies in a folder of packages"""
        os.mkdir(self.path("packages"))
        for name in ("bellows", "bellows.pth"):
            os.symlink(os.path.join(PACKAGE, name), self.path(f"packages/{name}"))
        text = f"""
import sys, site
site.addsitedir({self.path("packages")!r})
print("bellows_startup" in sys.modules, [p for p in sys.path if p.endswith("site")])
print(any(type(f).__name__ == "_Finder" for f in sys.meta_path))
"""
        out, _ = self.run_program(["-c", text], site=False)
        self.assertEqual(out, "False []\nFalse\n")
        self.assertEqual(
            self.run_program(["-c", text], site=False, BELLOWS_MODELS="on"), ("True []\nTrue\n", "")
        )

    def test_other_sitecustomize(self):
        """another sitecustomize is run too, under its name, and its errors are its own"""
        os.mkdir(self.path("other"))
        with open(self.path("other/sitecustomize.py"), "w", encoding="ascii") as file:
            file.write("import sys\nsys.other = __name__\n")
        places = [os.path.join(PACKAGE, "bellows/site"), self.path("other"), PLAIN]
        text = "import sys, sitecustomize; print(sys.other, sitecustomize.__file__)"
        for value in ("on", ""):
            out, _ = self.run_program(
                ["-c", text], BELLOWS_MODELS=value, PYTHONPATH=os.pathsep.join(places)
            )
            self.assertEqual(out, f"sitecustomize {self.path('other/sitecustomize.py')}\n")

    def test_twice_in_path(self):
        """a link to the folder and a copy of it change nothing, and another sitecustomize is run"""
        site = os.path.join(PACKAGE, "bellows/site")
        os.symlink(site, self.path("link"))
        shutil.copytree(site, self.path("copy"))
        os.mkdir(self.path("other"))
        with open(self.path("other/sitecustomize.py"), "w", encoding="ascii") as file:
            file.write("import sys\nsys.other = getattr(sys, 'other', 0) + 1\n")
        for first, second in (("link", site), (site, "link"), ("copy", site), (site, "copy")):
            places = [self.path(first), self.path(second), self.path("other"), PLAIN]
            out, err = self.run_program(
                ["-c", "import sys; print(sys.other)"],
                BELLOWS_MODELS="on", PYTHONPATH=os.pathsep.join(places),
            )
            self.assertEqual((out, err), ("1\n", ""))

    def test_hanging_store(self):
        """a store that hangs is waited for once, and asked again shortly for the files after that"""
        self.start_store()
        text = """
import sys, time
from bellows.models import hook
import safetensors.torch as s
hook._STALL_S = 1
for name in ("a", "half", "a"):
    begin = time.monotonic()
    s.load_file(f"{sys.argv[1]}/{name}.safetensors")
    print(time.monotonic() - begin)
"""
        self.daemon.send_signal(signal.SIGSTOP)
        try:
            out, _ = self.run_program(["-c", text], self.dir, BELLOWS_MODELS="on")
        finally:
            self.daemon.send_signal(signal.SIGCONT)
        first, *others = (float(line) for line in out.split())
        self.assertGreater(first, 1)
        self.assertLess(max(others), 0.9)

    def test_alone_in_path(self):
        """the folder of sitecustomize alone is enough, and brings no other packages"""
        self.start_store()
        text = f"""
import sys, safetensors
sys.path.append({PACKAGE!r})  # for the plain reader
import safetensors.torch as s
s.load_file({self.path("a.safetensors")!r})
"""
        text = text if PLAIN else text.replace("sys.path.append", "(lambda path: None)")
        places = [os.path.join(PACKAGE, "bellows/site"), PLAIN]
        _, err = self.run_program(
            ["-c", text.replace("import sys, safetensors\n", "import sys\n")],
            BELLOWS_MODELS="verbose", PYTHONPATH=os.pathsep.join(places),
        )
        self.assertIn("comes from the model store", err)

    def test_modules_stay_themselves(self):
        """the changed modules have their own loaders and can be loaded anew"""
        text = """
import importlib, safetensors
print(type(safetensors.__loader__).__name__, safetensors.__spec__.loader is safetensors.__loader__)
print(safetensors.safe_open.__name__, safetensors.safe_open.__module__)
importlib.reload(safetensors)
print("bellows" in safetensors.safe_open.__new__.__module__)
"""
        out, _ = self.run_program(["-c", text], BELLOWS_MODELS="on")
        self.assertRegex(out, r"^SourceFileLoader True\nsafe_open .*\nTrue\n$")

    def test_a_store_that_hangs(self):
        """a store that makes no progress holds a program up for a limited time only"""
        self.start_store("exec sleep 1000")
        text = """
import sys, bellows.models.hook as hook, safetensors.torch as s
hook._STALL_S = 0.5
print(s.load_file(sys.argv[1])["b"])
"""
        out, err = self.run_program(["-c", text], self.path("a.safetensors"), BELLOWS_MODELS="verbose")
        self.assertEqual(out, "tensor([7, 8])\n")
        self.assertIn("made no progress for", err)

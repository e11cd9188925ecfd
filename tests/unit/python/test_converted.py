# SPDX-License-Identifier: Apache-2.0
import os
import unittest

from bellows import models
from model_support import PLAIN, StoreTestCase
from support import PACKAGE
from test_models_torch import NO_TORCH, Net

if not NO_TORCH:
    import torch


@unittest.skipIf(NO_TORCH, NO_TORCH)
class Converted(StoreTestCase):
    def served(self, program):
        """Runs a program for which torch.load of a.pt is served from a.safetensors."""
        return self.program(
            "import os, torch\n" + program,
            BELLOWS_MODELS="verbose",
            BELLOWS_MODELS_MAP=f"{self.path('a.pt')}={self.path('a.safetensors')}",
            PYTHONPATH=os.path.join(PACKAGE, "bellows/site"),
        )

    def prepare(self, state):
        torch.save(state, self.path("a.pt"))
        models.convert(self.path("a.pt"), self.path("a.safetensors"))
        self.options.append(f"--model=a={self.path('a.safetensors')},tenant=a")
        self.start_store()

    def test_torch_load(self):
        """torch.load gives what it gave before the file was converted, from the store"""
        self.prepare(Net().bfloat16().state_dict())
        out, err = self.served(
            "a = torch.load('a.pt')\n"
            "b = torch.load(open('a.pt', 'rb'))\n"
            "print(type(a) is type(b), list(a) == list(b), a._metadata == b._metadata)\n"
            "print(all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in b))\n"
            "print(a['head.weight'].data_ptr() == a['embedding.weight'].data_ptr())\n"
            "a['norm.weight'].add_(1); print(torch.equal(torch.load('a.pt')['norm.weight'], b['norm.weight']))\n"
        )
        self.assertEqual(out.split(), ["True"] * 6)
        self.assertEqual(err.count("comes from the model store"), 2)

    def test_changed(self):
        """a file that was saved again is read as usual"""
        self.prepare({"a": torch.zeros(3)})
        torch.save({"a": torch.ones(3)}, self.path("a.pt"))
        out, err = self.served("print(torch.load('a.pt'))")
        self.assertEqual(out, "{'a': tensor([1., 1., 1.])}")
        self.assertIn("was changed since it was converted", err)

    def test_arguments(self):
        """what the store can't do is left to torch"""
        self.prepare({"a": torch.zeros(3)})
        out, err = self.served(
            "torch.load('a.pt', 'cpu'); torch.load('a.pt', weights_only=True)\n"
            "torch.load('a.pt', torch.device('cpu'))\n"
            "torch.load('a.pt', map_location=lambda s, l: s)\n"
            "torch.load('a.pt', map_location={}); torch.load('a.pt', encoding='utf-8')\n"
            "try: torch.load('b.pt')\n"
            "except FileNotFoundError as e: print(e)\n"
        )
        self.assertEqual(err.count("comes from the model store"), 3)
        self.assertEqual(err.count("is read as usual"), 4)
        self.assertIn("b.pt", out)

    def test_example(self):
        """the example's programs have the same result with the store's memory"""
        examples = os.path.join(PACKAGE, "../examples/models")
        state, converted = self.path("spirals.pt"), self.path("spirals.safetensors")
        map_of = f"/other.pt=/other:{state}={converted}"

        def run(program, path, **environment):
            places = [PLAIN, os.path.join(PACKAGE, "bellows/site"), PACKAGE]
            text = "import runpy, sys; sys.path.insert(0, sys.argv[1]); del sys.argv[0]\n"
            text += f"sys.argv[0] = '{program}'; runpy.run_path(f'{examples}/{program}', None, '__main__')"
            return self.program(
                text, examples, path, PYTHONPATH=os.pathsep.join(filter(None, places)), **environment
            )

        run("train.py", state)
        models.convert(state, converted)
        without, _ = run("classify.py", state)
        self.assertRegex(without, "^(19|20)[0-9][0-9] of 2000 points")
        self.options.append(f"--model=spirals={converted},tenant=a")
        self.start_store()
        for path in (state, converted):
            out, err = run("classify.py", path, BELLOWS_MODELS="verbose", BELLOWS_MODELS_MAP=map_of)
            self.assertEqual(out, without)
            self.assertEqual(err, f"bellows: {path} comes from the model store\n")
        self.assertEqual(self.said().count("loaded "), 1)

    def test_refused(self):
        """what cannot be converted is named, and leaves no file"""
        shared = torch.zeros(4)
        for state, why in (
            ([1], "holds a list"),
            ({"a": 1}, "a is a int"),
            ({"m": {"a": shared}}, "m is a dict"),
            ({"a": torch.zeros(2, 3).t()}, "a is not dense and in C order"),
            ({"a": shared, "b": shared[1:]}, "share a part of their memory"),
            ({"a": torch.zeros(1, dtype=torch.complex128)}, "complex128"),
        ):
            torch.save(state, self.path("a.pt"))
            with self.assertRaisesRegex(models.InvalidError, why):
                models.convert(self.path("a.pt"), self.path("out"))
        self.assertEqual(os.listdir(self.dir), ["a.pt"])

# SPDX-License-Identifier: Apache-2.0
"""Python imports this at its start where this folder is in PYTHONPATH: see python/README.md.

It is for containers and other installations of Python, in which bellows.pth does not lie. Whatever
sitecustomize there is besides is run as if this one were not there.
"""

import os
import sys
from importlib import _bootstrap, _bootstrap_external  # importlib.util would cost 5 ms

_HERE = os.path.dirname(os.path.realpath(__file__))
#: Where this file was run already: another copy in the path would else find this one again.
_bellows_places = {_HERE, *globals().get("_bellows_places", ())}


def _install():
    try:
        import bellows_startup

        bellows_startup.install()
    except Exception as error:  # the program works without it
        print(f"bellows: models are read as usual: {error}", file=sys.stderr)


def _run_next():
    others = [path for path in sys.path if os.path.realpath(path) not in _bellows_places]
    spec = _bootstrap_external.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    sys.modules["sitecustomize"] = module = _bootstrap.module_from_spec(spec)
    module._bellows_places = _bellows_places
    spec.loader.exec_module(module)


if os.environ.get("BELLOWS_MODELS") in ("on", "verbose"):
    _install()
_run_next()

# SPDX-License-Identifier: Apache-2.0
"""Waits for the modules that bellows.models.hook changes. Imports nothing: it runs at each start."""

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _hook():
    import importlib.util

    if "bellows" not in sys.modules and importlib.util.find_spec("bellows") is None:
        # The folder that has it may have packages of another Python, so it isn't put on the path.
        spec = importlib.util.spec_from_file_location(
            "bellows", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE]
        )
        sys.modules["bellows"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    from bellows.models import hook

    return hook


def _change(module):
    try:
        _hook().CHANGES[module.__name__](module)
    except Exception as error:  # it has other names, or this package is not whole
        if os.environ.get("BELLOWS_MODELS") == "verbose":
            print(f"bellows: {module.__name__} stays as it is: {error}", file=sys.stderr)


class _Loader:
    """The module's own loader, and then the change."""

    def __init__(self, own):
        self._own = own

    def create_module(self, spec):
        return self._own.create_module(spec)

    def exec_module(self, module):
        # From here on nobody sees that it was loaded in another way.
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        _change(module)

    def __getattr__(self, name):
        return getattr(self._own, name)


class _Finder:
    """Lets the other finders find the modules."""

    def __init__(self, names):
        self.names = set(names)

    def find_spec(self, name, path=None, target=None):
        if name not in self.names:
            return None
        import importlib.util

        # Else this finder would be asked again.
        self.names.discard(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.names.add(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader)
        return spec


def install():
    """Has safetensors and torch changed when they are imported, or now if they are."""
    if any(type(finder) is _Finder for finder in sys.meta_path):
        return
    names = ["safetensors"] + (["torch"] if os.environ.get("BELLOWS_MODELS_MAP") else [])
    for name in names:
        if name in sys.modules:
            _change(sys.modules[name])
    sys.meta_path.insert(0, _Finder(names))

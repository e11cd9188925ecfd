# SPDX-License-Identifier: Apache-2.0
"""Programs that know nothing of the model store get its memory from safetensors and torch.load.

What the store does not have goes to the original function, with its arguments as they are.
"""

import os
import sys
import threading
import time
import weakref
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

_STALL_S = 60.0
#: For so long after a stall only what is in memory is asked for, with a wait of so long.
_AFTER_STALL_S = 300.0
_SHORT_MS = 250


def _say(path: Any, why: Optional[Exception]) -> None:
    if os.environ.get("BELLOWS_MODELS") == "verbose":
        text = "comes from the model store" if why is None else f"is read as usual: {why}"
        print(f"bellows: {os.fspath(path)} {text}", file=sys.stderr)


class _Elsewhere(Exception):
    """Why the store does not serve a file."""


class _Patience:
    """A store that makes no progress must not hold up a program that can read the file itself."""

    #: When one was noticed in this process, which else would wait as long for each of its files.
    _stalled: Optional[float] = None

    def __init__(self) -> None:
        self._last: Tuple[int, int] = (0, 0)
        self._since = time.monotonic()

    @classmethod
    def wait_ms(cls) -> int:
        """For how long an open may wait: 0 is as long as there is progress."""
        stalled = cls._stalled
        recent = stalled is not None and time.monotonic() - stalled < _AFTER_STALL_S
        return _SHORT_MS if recent else 0

    @classmethod
    def answered(cls) -> None:
        cls._stalled = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if (done, total) != self._last:
            self._last, self._since = (done, total), now
        elif now - self._since > _STALL_S:
            _Patience._stalled = now
            raise _Elsewhere(f"the model store made no progress for {_STALL_S:.0f} s")


class _Mappings:
    """The models that this process has mapped. The parts of one model share a mapping and with it
    a connection, but no tensor that was asked for twice does: each is its caller's own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: List[Tuple[Any, Set[str]]] = []

    def take(self, lent: Any, names: Set[str]) -> Any:
        """A mapping of the same model of which nobody has these tensors; `lent` if there is none."""
        with self._lock:
            self._all = [(of, taken) for of, taken in self._all if of() is not None]
            for of, taken in self._all:
                other = of()
                if other is not None and other.digest == lent.digest and not taken & names:
                    taken |= names
                    return other
            self._all.append((weakref.ref(lent), set(names)))
            return lent

    def forget_lock(self) -> None:
        # Of a thread that a forked process does not have.
        self._lock = threading.Lock()


_mappings = _Mappings()
os.register_at_fork(after_in_child=_mappings.forget_lock)


def _find(path: str, dtype_of: Callable[[str], Any]) -> Tuple[Any, Any]:
    """The header of a file, and the model in the store that has its tensors, private and
    writable."""
    from . import _lib
    from .errors import NotFoundError
    from .files import open_plain, parse_header
    from .model import Model

    path = os.path.abspath(path)
    lent = None
    for name in dict.fromkeys((path, os.path.realpath(path))):
        try:
            lent = lent or _lib.open_model(
                f"file:{name}", None, _Patience.wait_ms(), True, _Patience()
            )
            _Patience.answered()
        except NotFoundError as error:
            missing = error
    if lent is None:
        raise missing
    with open_plain(path) as file:
        header = parse_header(file, path)
    model = Model(path, _mappings.take(lent, set(header.entries)), True, None)
    for name, entry in header.entries.items():
        info = model.info(name)
        if (info.dtype, info.shape) != (entry.dtype, entry.shape):
            raise _Elsewhere(f"tensor {name} is another in the store")
        if dtype_of(entry.dtype) is None:
            raise _Elsewhere(f"tensor {name} is of type {entry.dtype}")
    return header, model


def _framework(name: Any) -> str:
    known = {"pt": "torch", "torch": "torch", "pytorch": "torch", "np": "numpy", "numpy": "numpy"}
    if name not in known:
        raise _Elsewhere(f"it is wanted for {name}")
    return known[name]


class _Slice:
    """As PySafeSlice of safetensors: a tensor of which parts are got."""

    def __init__(self, entry: Any, get: Callable[[], Any], copies: bool = False) -> None:
        self._entry, self._get, self._copies = entry, get, copies

    def get_shape(self) -> List[int]:
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        return self._entry.dtype

    def __getitem__(self, index: Any) -> Any:
        part = self._get()[index]
        return part.copy() if self._copies else part


class _Served:
    """A file as safe_open of safetensors has it, with tensors of the store."""

    def __init__(
        self, original: Any, error: Any, filename: Any, framework: Any, device: Any
    ) -> None:
        from .model import numpy_dtype, torch_dtype

        self._numpy = _framework(framework) == "numpy"
        if self._numpy and str(device) != "cpu":
            raise _Elsewhere(f"it is wanted on {device}")
        self._header, self._model = _find(
            os.fspath(filename), numpy_dtype if self._numpy else torch_dtype
        )
        self._device = None if str(device) == "cpu" else device
        self._error = error
        self._again = lambda: original(filename, framework)
        self._given: Set[str] = set()

    def __enter__(self) -> "_Served":
        return self

    def __exit__(self, *_: Any) -> None:
        self._model.close()

    def _entry(self, name: str) -> Any:
        if self._model.closed:
            raise self._error("File is closed")
        if name not in self._header.entries:
            raise self._error(f"File does not contain tensor {name}")
        return self._header.entries[name]

    def __getattr__(self, name: str) -> Any:
        # What this version of safetensors has besides. Nothing of it may be asked before __init__.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._again(), name)

    def keys(self) -> List[str]:
        return sorted(self._header.entries)

    def metadata(self) -> Optional[Dict[str, str]]:
        return self._header.metadata

    def get_tensor(self, name: str) -> Any:
        self._entry(name)
        if not self._numpy:
            tensor = self._model.tensor(name)
            return tensor if self._device is None else tensor.to(self._device)
        # Each array is its caller's own, also a second one.
        if name in self._given:
            return self._again().get_tensor(name)
        self._given.add(name)
        return self._model.array(name)

    def get_slice(self, name: str) -> Any:
        entry = self._entry(name)
        if not self._numpy:
            return _Slice(entry, lambda: self.get_tensor(name))
        if name in self._given:
            return self._again().get_slice(name)
        return _Slice(entry, lambda: self._model.array(name), copies=True)


def _safe_open(original: Any, error: Any) -> Any:
    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, (original, _Served))

    class safe_open(metaclass=Kind):
        __doc__ = original.__doc__

        def __new__(
            cls, filename: Any, framework: Any, device: Any = "cpu", *more: Any, **others: Any
        ) -> Any:
            try:
                if more or others:
                    raise _Elsewhere("it is opened in a way that is unknown here")
                served = _Served(original, error, filename, framework, device)
            except Exception as why:  # whatever it is, the original can do it or says what is wrong
                _say(filename, why)
                return original(filename, framework, device, *more, **others)
            _say(filename, None)
            return served

    safe_open.__module__ = original.__module__
    safe_open.__qualname__ = "safe_open"
    return safe_open


def _change_safetensors(module: ModuleType) -> None:
    original = module.safe_open
    changed = _safe_open(original, module.SafetensorError)
    module.safe_open = changed  # type: ignore[attr-defined]
    for name in ("safetensors.torch", "safetensors.numpy"):
        part = sys.modules.get(name)
        if getattr(part, "safe_open", None) is original:
            part.safe_open = changed  # type: ignore[union-attr]


def _map_of(text: str) -> Dict[str, str]:
    """"/a.pt=/a.safetensors:/b.pt=/b.safetensors" """
    pairs = (entry.partition("=") for entry in text.split(":"))
    return {os.path.realpath(of): to for of, sign, to in pairs if sign and of and to}


def _load_served(f: Any, arguments: Tuple, named: Dict[str, Any]) -> Any:
    import pickle

    from .converted import loaded
    from .model import torch_dtype

    path = os.fspath(f)
    to = _map_of(os.environ.get("BELLOWS_MODELS_MAP", "")).get(os.path.realpath(path))
    if to is None:
        raise _Elsewhere("BELLOWS_MODELS_MAP does not name it")
    given = dict(zip(("map_location", "pickle_module"), arguments), **named)
    device = given.pop("map_location", None)
    surplus = set(given) - {"pickle_module", "weights_only", "mmap"}
    if len(arguments) > 2 or surplus or given.get("pickle_module") not in (None, pickle):
        raise _Elsewhere("it is loaded in a way that is unknown here")
    if callable(device) or isinstance(device, dict):
        raise _Elsewhere("its map_location is neither a device nor a device's name")
    header, model = _find(to, torch_dtype)
    return loaded(path, header, model, device)


def _change_torch(module: ModuleType) -> None:
    import functools

    original = module.load

    @functools.wraps(original)
    def load(f: Any, *arguments: Any, **named: Any) -> Any:
        if not isinstance(f, (str, os.PathLike)):
            return original(f, *arguments, **named)
        try:
            state = _load_served(f, arguments, named)
        except Exception as why:  # as above
            _say(f, why)
            return original(f, *arguments, **named)
        _say(f, None)
        return state

    module.load = load  # type: ignore[attr-defined]
    module.serialization.load = load


#: What bellows.site.bellows_startup does to each module when it was imported.
CHANGES: Dict[str, Callable[[ModuleType], None]] = {
    "safetensors": _change_safetensors,
    "torch": _change_torch,
}

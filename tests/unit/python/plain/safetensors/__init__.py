# SPDX-License-Identifier: Apache-2.0
"""A plain reader of safetensors files with the interface of the package of this name, for where that
is not installed: Debian 12 does not have it. tests/cluster/modelstore/0081-hook.t has the real one."""

from bellows.models.files import read_header


class SafetensorError(Exception):
    pass


class safe_open:
    def __init__(self, filename, framework, device="cpu"):
        self._header = read_header(filename)
        self._filename, self._framework, self._device = filename, framework, device

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._header = None

    def _entry(self, name):
        if self._header is None:
            raise SafetensorError("File is closed")
        if name not in self._header.entries:
            raise SafetensorError(f"File does not contain tensor {name}")
        return self._header.entries[name]

    def keys(self):
        return sorted(self._header.entries)

    def offset_keys(self):
        return sorted(self._header.entries, key=lambda name: self._header.entries[name].begin)

    def metadata(self):
        return self._header.metadata

    def get_tensor(self, name):
        entry = self._entry(name)
        with open(self._filename, "rb") as file:
            file.seek(self._header.data + entry.begin)
            data = bytearray(file.read(entry.end - entry.begin))
        if self._framework in ("np", "numpy"):
            import numpy
            from bellows.models.model import numpy_dtype

            return numpy.frombuffer(data, numpy_dtype(entry.dtype)).reshape(entry.shape)
        import torch
        from bellows.models.model import torch_dtype

        if not data:
            return torch.empty(entry.shape, dtype=torch_dtype(entry.dtype))
        tensor = torch.frombuffer(data, dtype=torch_dtype(entry.dtype)).reshape(entry.shape)
        return tensor.to(self._device)

    def get_slice(self, name):
        return _Slice(self._entry(name), self.get_tensor(name))


class _Slice:
    def __init__(self, entry, tensor):
        self._entry, self._tensor = entry, tensor

    def get_shape(self):
        return list(self._entry.shape)

    def get_dtype(self):
        return self._entry.dtype

    def __getitem__(self, index):
        return self._tensor[index]

"""Reads safetensors files, of which only what is asked for comes into memory."""

import collections.abc
import json
import pathlib

import numpy as np

from .errors import FileError, FormatError, UnsupportedError


class Tensors(collections.abc.Mapping):
    """Maps names to the tensors of a safetensors file, or of those in a folder, as float32."""

    TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}

    def __init__(self, path):
        path, self._places = pathlib.Path(path), {}
        for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
            try:
                data = np.memmap(file, np.uint8, "r")
                start = 8 + int.from_bytes(data[:8].tobytes(), "little")
                header = json.loads(data[8:start].tobytes())
                header.pop("__metadata__", None)
                for each, entry in header.items():
                    self._places[each] = file, entry["dtype"], entry["shape"], data[start:][slice(*entry["data_offsets"])]
            except OSError as e:
                raise FileError(f"{file}: {e.strerror}") from e
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as e:
                raise FormatError(f"{file}: got no safetensors file, expected one") from e

    def __getitem__(self, name):
        file, kind, shape, data = self._places[name]
        if kind not in self.TYPES:
            raise UnsupportedError(f"{file}: {name!r}: got {kind}, expected {', '.join(self.TYPES)}")
        try:
            values = data.view(self.TYPES[kind]).reshape(shape)
        except (ValueError, TypeError) as e:
            raise FormatError(f"{file}: {name!r}: got {len(data)} bytes for {kind} {shape}") from e
        return (values.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else values.astype(np.float32)

    def __iter__(self):
        return iter(self._places)

    def __len__(self):
        return len(self._places)

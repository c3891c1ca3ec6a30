"""Holds LoRA adapters as PEFT stores them."""

import collections.abc
import dataclasses
import numbers
import os
from typing import Iterable

import numpy as np

from . import _core
from .errors import FileError, ParameterError, ShapeError


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """One linear layer's adapter: it adds ``scale * B @ A @ h``.

    a, b: real numbers of shape [rank, d_in] and [d_out, rank], in whatever numpy reads; kept as float32.
    Raises ShapeError for other shapes, TypeError for values that are not real numbers.
    """

    name: str
    a: np.ndarray
    b: np.ndarray
    scale: float = 1.0

    def __post_init__(self):
        where = f"site {expect(self.name, str, 'site: name', 'str')!r}"
        for name in ("a", "b"):
            object.__setattr__(self, name, _float32(getattr(self, name), f"{where}: {name}"))
        object.__setattr__(self, "scale", number(self.scale, f"{where}: scale"))
        if self.a.ndim != 2 or self.b.ndim != 2 or self.a.shape[0] != self.b.shape[1]:
            raise ShapeError(f"{where}: got A {list(self.a.shape)} and B {list(self.b.shape)}, "
                             "expected [rank, d_in] and [d_out, rank]")

    @property
    def rank(self) -> int:
        """The number of rows of A."""
        return self.a.shape[0]

    @property
    def d_in(self) -> int:
        """The number of entries of a hidden state."""
        return self.a.shape[1]

    @property
    def d_out(self) -> int:
        """The number of entries of a delta."""
        return self.b.shape[0]

    def delta(self, x):
        """Returns the delta in the clear, for comparison: [..., d_in] to [..., d_out], in float64."""
        return (np.asarray(x, np.float64) @ self.a.T.astype(np.float64)) @ self.b.T.astype(np.float64) * self.scale

    def __repr__(self):
        return f"Site({self.name!r}, rank={self.rank}, {self.d_in} -> {self.d_out}, scale={self.scale:g})"


class Adapter(collections.abc.Mapping):
    """Maps names to sites, in the order of the file. A name may be cut to its last parts if they fit one site only.

    >>> adapter = tensafe.load_peft("path/to/peft_directory")
    >>> adapter["self_attn.q_proj"]
    Site('model.layers.0.self_attn.q_proj', rank=32, 2048 -> 4096, scale=2)
    """

    def __init__(self, sites: "Iterable[Site] | Site", notes: "Iterable[str]" = (),
                 invocation_tokens: "Iterable[int]" = ()) -> None:
        self._sites: dict = {}
        self.notes = list(notes)  # what load_peft left out, in sentences
        # Activated LoRA applies from their last occurrence on (`tensafe.torch.attach`), other LoRA everywhere.
        self.invocation_tokens = [count(token, "invocation_tokens") for token in invocation_tokens]
        several = expect(sites, (Site, collections.abc.Iterable), "adapter", "Sites")
        for site in [sites] if isinstance(sites, Site) else several:
            if expect(site, Site, "adapter", "Sites (of a mapping, its values())").name in self._sites:
                raise ParameterError(f"adapter: got two sites {site.name!r}, expected each name once")
            self._sites[site.name] = site
        if not self._sites:
            raise ShapeError("adapter: got no sites, expected at least one")

    def __getitem__(self, name: str) -> Site:
        return self._sites[find(name, self._sites)]

    def __contains__(self, name):
        try:
            return bool(self[name])
        except (KeyError, TypeError):
            return False

    def __iter__(self):
        return iter(self._sites)

    def __len__(self):
        return len(self._sites)

    def __repr__(self):
        return f"Adapter({len(self)} sites)\n" + "\n".join(f"  {site!r}" for site in self._sites.values())


def expect(value, types, what, expected):
    if not isinstance(value, types):  # the message shows no value
        raise TypeError(f"{what}: got {type(value).__name__}, expected {expected}")
    return value


def number(value, what):
    return float(expect(value, numbers.Real, what, "a number"))


def flag(value, what):
    return bool(expect(value, (int, np.bool_), what, "True or False"))


def count(value, what):
    if not 0 <= expect(value, numbers.Integral, what, "a whole number") < 2**31:
        raise ParameterError(f"{what}: got {value}, expected 0 to {2**31 - 1}")
    return int(value)


def _float32(value, what):
    try:
        return np.asarray(value).astype(np.float32, casting="same_kind", copy=False)
    except (TypeError, ValueError, RuntimeError) as e:  # numpy's, and torch's of tensors with gradients
        raise TypeError(f"{what}: got {type(value).__name__}, expected real numbers that numpy reads") from e


def find(name, names):
    """Returns the one of `names` that is `name` or ends with "." + name. Raises KeyError, which says what there is."""
    if expect(name, str, "site", "the name of one, or its last parts") in names:
        return name
    found = [other for other in names if other.endswith("." + name)]
    if len(found) != 1:
        some = ", ".join(found or list(names)[:4])
        raise KeyError(f"site {name!r} is {'several of' if found else 'none of'} {some}"
                       + (", ..." if not found and len(names) > 4 else ""))
    return found[0]


def load_peft(directory: "str | os.PathLike[str]") -> Adapter:
    """Reads adapter_config.json and adapter_model.safetensors of a PEFT directory, or the files of its index.

    Experts of a parameter (target_parameters) become sites "MODULE.0", "MODULE.1", ... Copies of the base model's
    own weights are left out, and the adapter's `notes` say so.

    Raises FileError if a file cannot be read, FormatError if it is malformed, UnsupportedError for anything but plain
    LoRA on linear layers.
    """
    path = os.fsdecode(directory)
    if not os.path.isdir(path):
        raise FileError(f"{path}: is no directory, expected that of a PEFT adapter")
    sites, *others = _core.load_peft(path)
    return Adapter((Site(*values) for values in sites), *others)


def values_of(adapter):
    expect(adapter, Adapter, "adapter", "a tensafe.Adapter, as tensafe.load_peft gives it")
    return [(site.name, site.a, site.b, site.scale) for site in adapter.values()]

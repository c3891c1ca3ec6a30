"""Puts encrypted adapters into torch models: see `attach`."""

import collections.abc
import contextlib
import os
import threading
import warnings
from typing import Any, Mapping, Optional, Union

import numpy as np
import torch

from .adapter import Adapter, _float32, expect
from .errors import FileError, FormatError, ParameterError, ShapeError, UnsupportedError
from .model import CLAMPED, Client, Server, Session, check_gains


class _SharedInput(threading.local):
    """Asks for the deltas of the sites that read one input once, and hands out each once."""

    def __init__(self, session, sites):
        self._session = session
        self._sites = frozenset(sites)
        self._left = {}

    def delta(self, site, x):
        # The bits: tensors may change in place, and one with NaN is asked for once as well.
        bits = x.detach().contiguous().view(-1).view(torch.uint8)
        kind = (x.shape, x.dtype)
        if site not in self._left or kind != self._kind or not torch.equal(bits, self._bits):
            self._left = {}
            deltas = self._session.deltas(site, x.detach(), zeros_for_nan=True)
            self._kind, self._bits = kind, bits.clone()
            self._left = {name: delta for name, delta in deltas.items() if name in self._sites}
        return self._left.pop(site)


class EncryptedLinear(torch.nn.Module):
    """A linear layer with an encrypted adapter: ``base(x) + delta(x)`` for x of shape [..., in_features].

    With row factors g, float32 of shape [out_features], it is ``bias + g * (base(x) - bias) + delta(x)``, rounded once
    to the type of base(x), as PEFT does for DoRA. The delta has no gradient, so the model must run under
    `torch.no_grad()`. Use `attach` for a whole model: q, k and v of a layer then share a request.
    """

    def __init__(self, base, session, site, shared=None, row_factors=None):
        super().__init__()
        self.base = base
        self.site = site
        self._shared = shared or _SharedInput(session, [site])
        self._row_factors = row_factors  # no buffer, which model.half() would round

    def forward(self, x):
        if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.base.parameters())):
            raise UnsupportedError("EncryptedLinear: the delta has no gradient, and gradients are recorded: run the "
                                   "model under torch.no_grad()")
        result = self.base(x)
        delta = self._shared.delta(self.site, x.to(result.dtype))  # another one under autocast
        if self._row_factors is not None:
            bias = getattr(self.base, "bias", None)
            delta = delta + (self._row_factors - 1) * (result if bias is None else result - bias)
        return (result + delta).to(result.dtype)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base"), name)  # weight, bias, in_features

    def extra_repr(self):
        return f"site={self.site!r}"


class Attachment(contextlib.AbstractContextManager):
    """Keeps an adapter in a model until `detach()`, or the end of a `with` block, puts the model's own layers back."""

    def __init__(self, session, places):
        self.session = session
        self._places = places  # (parent, name, EncryptedLinear)
        self._clamped_before = session.clamped_deltas

    def detach(self):
        """Puts the model's own layers back, in any order with other attachments.

        Warns if `session.clamped_deltas` rose, which no server may see earlier. Then raises ParameterError for places
        where another layer is now, which stays.
        """
        places, self._places = self._places, []
        lost = [layer.site for parent, name, layer in places if getattr(parent, name, None) is not layer]
        for parent, name, layer in places:
            if layer.site not in lost:
                setattr(parent, name, layer.base)
        if places and (clamped := self.session.clamped_deltas - self._clamped_before):
            warnings.warn(CLAMPED.format(clamped), RuntimeWarning, stacklevel=2)
        if lost:
            raise ParameterError(f"detach: {_named(lost)}: got another layer than attach put there, and left it")

    def __exit__(self, *_):
        self.detach()


def attach(model: torch.nn.Module, adapter: "Adapter | Session", *, partial: bool = False,
           base_norms: Optional[Mapping[str, float]] = None,
           row_factors: "Union[str, os.PathLike[str], Mapping[str, Any], None]" = None, **options) -> Attachment:
    """Puts an encrypted adapter into a model: the layer of each site becomes an `EncryptedLinear`.

    adapter: a `Session`; or an `Adapter`, which is then served in this process, with the options of `tensafe.Server`.
    partial: whether sites that the model does not have, or that the server does not keep to itself, are left out.
    base_norms: as for `tensafe.Client`; by default those of the layers, 1024 times as much where these are not float16,
        with a warning for quantised ones; {}: none.
    row_factors: for an adapter that was DoRA, by what each output of the layers, without bias, is multiplied: the file
        that `tensafe.dora.convert` wrote, or a mapping from all sites to arrays of shape [d_out].
    A site's layer, a `torch.nn.Linear` or transformers' `Conv1D`, is the module of its name; or all paths or all names
    have one prefix more, beside what torch.compile and other wrappers put into paths. For hidden states with NaN or
    infinity 0 is sent, and `Attachment.session.bad_states` counts them.
    Raises ParameterError for a site that is no module, or several, or one with another site, and for too large a gain
    or row factor; ShapeError for a layer or row factors of another shape; the model is unchanged then.
    """
    if isinstance(adapter, Adapter):
        shapes = {name: (site.d_in, site.d_out) for name, site in adapter.items()}
    elif isinstance(adapter, Session) and not options:
        shapes = adapter._shapes()
    else:
        raise TypeError(f"attach: got {type(adapter).__name__}" + (" and options" if options else "")
                        + ", expected a tensafe.Session, or a tensafe.Adapter with options")
    places = _places("attach", model, shapes, partial)
    factors = _row_factors(row_factors, shapes, places, partial)
    if base_norms is None:
        norms = {site: _norm_of(layer) for site, (*_, layer) in places.items()}
        base_norms = {site: norm for site, norm in norms.items() if norm is not None}
        if unknown := [site for site in norms if site not in base_norms]:
            warnings.warn(f"attach: {_named(unknown)}: the base layer's weights are quantised or elsewhere: not their "
                          "norm but 2^20 bounds the gain", RuntimeWarning, stacklevel=2)
    if isinstance(adapter, Adapter):
        server = Server(Adapter(adapter[site] for site in places), **options)
        adapter = Client(server).connect(server)
    if adapter._core.in_the_clear and not partial:
        raise ParameterError(f"attach: got sites in the clear, {_named(adapter._core.in_the_clear)}, expected encrypted"
                             " ones alone: partial=True leaves others out")
    check_gains("attach", adapter._core.groups, base_norms)
    shared: dict = collections.defaultdict(lambda: _SharedInput(adapter, places))
    ours = [(*places[site][:2], EncryptedLinear(places[site][2], adapter, site, shared[group],
                                                 factors.get(site)))
            for site, (*_, group) in adapter._shapes().items() if site in places]
    for parent, name, layer in ours:
        setattr(parent, name, layer)
    return Attachment(adapter, ours)


_READ_WEIGHTS = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer)  # and may not call the layers
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")  # parts that they put into paths


def _places(who, model, shapes, partial):
    """Returns (parent, name, layer) of each site. Raises as `attach` does."""
    modules = dict(model.named_modules(remove_duplicate=False))
    places, sites, names = {}, {}, collections.defaultdict(dict)
    cut = {path: path.rpartition(".") for path in modules if path}
    spots = {path: (id(modules[parent]), name) for path, (parent, _, name) in cut.items()}  # the same of two such paths
    for path, spot in spots.items():
        names[id(modules[path])][spot] = path
    for site, path in _paths(who, shapes, spots, partial).items():
        parent, layer = modules[cut[path][0]], modules[path]
        if (other := sites.setdefault(id(layer), site)) != site:
            raise ParameterError(f"{who}: two sites are one module: {other!r} and {site!r} are {path!r}")
        features, several = _features(layer), names[id(layer)].values()
        got = (f"a module of several names, {_named(several)}" if len(several) > 1 else
               "a layer with an encrypted adapter, not detached" if isinstance(layer, EncryptedLinear) else
               f"a {type(layer)}" if not features else
               f"a layer of a {type(parent)}, which may not call it" if isinstance(parent, _READ_WEIGHTS) else "")
        if got:
            raise ParameterError(f"{who}: site {site!r}: got {got}, expected a torch.nn.Linear or Conv1D")
        if features != shapes[site][:2]:
            raise ShapeError(f"{who}: site {site!r}: got a layer {' -> '.join(map(str, features))}, "
                             f"expected {shapes[site][0]} -> {shapes[site][1]}")
        places[site] = parent, cut[path][2], layer
    return places


def _paths(who, sites, spots, partial):
    """Returns the path of each site's module: its name, or all paths, or all names, have one prefix more."""
    paths = {".".join(part for part in path.split(".") if part not in _WRAPPERS): path for path in spots}
    fits = collections.defaultdict(dict)  # by the prefixes of names and of paths
    exact = fits["", ""]
    for site in sites:
        for prefix, rest in _cuts(site):
            if rest in paths:
                fits[prefix, ""][site] = paths[rest]
    for bare, path in paths.items():
        for prefix, rest in _cuts(bare)[1:]:
            if rest in sites:
                fits["", prefix][rest] = path
    best = max(fits.values(), key=len)  # of several the first, which is `exact`
    taken = {spots[path]: site for site, path in best.items()}
    for fit in fits.values():
        if fit is best or fit.keys() <= best.keys() and (len(fit) < len(best) or best is exact):
            continue
        for site, path in fit.items():
            if site in best and spots[path] != spots[best[site]]:
                several = _named(f[site] for f in fits.values() if site in f)
                raise ParameterError(f"{who}: site {site!r} is several modules of the model: {several}")
            if (other := taken.setdefault(spots[path], site)) != site:
                raise ParameterError(f"{who}: two sites are one module: {other!r} and {site!r} are {path!r}")
        if not fit.keys() <= best.keys():
            raise ParameterError(f"{who}: sites {_named(best)} and {_named(fit)} are modules by different prefixes")
    missing = [site for site in sites if site not in best]
    if missing and not (partial and best):
        raise ParameterError(f"{who}: site {_named(missing)} is no module of the model"
                             + (f", {len(best)} of {len(sites)} are" if best else "")
                             + (": partial=True leaves out others" if best and partial is not None else ""))
    return best


def _cuts(path):
    """Returns (prefix, rest) for each number of parts that the prefix can have."""
    return [(path[:k], path[k:]) for k in range(len(path)) if k == 0 or path[k - 1] == "."]


def _named(names):
    names = list(names)
    return ", ".join(map(repr, names[:4])) + (", ..." if len(names) > 4 else "")


def _features(layer):
    """The numbers of inputs and outputs of a layer; None if it is no linear layer."""
    is_conv1d = hasattr(layer, "nf") and any(kind.__name__ == "Conv1D" for kind in type(layer).__mro__)
    return ((layer.in_features, layer.out_features) if isinstance(layer, torch.nn.Linear) else
            tuple(layer.weight.shape) if is_conv1d else None)  # its weight: [in, out]


def weight_of(layer):
    """The weights of a linear layer, [d_out, d_in]; None if they are not the layer's numbers."""
    weight = layer.weight
    is_plain = type(weight) in (torch.Tensor, torch.nn.Parameter) and weight.is_floating_point() and not weight.is_meta
    if not is_plain or weight.element_size() < 2:
        return None
    weight = weight.detach() if isinstance(layer, torch.nn.Linear) else weight.detach().T
    return weight if weight.shape == _features(layer)[::-1] else None


def _norm_of(layer):
    """The most that a delta may be longer than a hidden state: the Frobenius norm of a layer's float16 weights, and
    1024 times that of others, whose sums are far from infinite; None if the weights are not the layer's numbers."""
    weight = weight_of(layer)
    if weight is None:
        return None
    norm = float(torch.linalg.vector_norm(weight, dtype=torch.promote_types(weight.dtype, torch.float32)))
    return norm * (1 if weight.dtype == torch.float16 else 1024)


def _row_factors(given, shapes, places, partial):
    """Returns float32 factors of each site of `places`; none if none were given. Raises as `attach` does."""
    if given is None:
        return {}
    if isinstance(given, (str, os.PathLike)):
        given = load_tensors(given)
    expect(given, collections.abc.Mapping, "row_factors", "the path of a file, or a mapping from sites to arrays")
    for names, got in (([site for site in given if site not in shapes and not partial], "no site of the adapter"),
                       ([site for site in places if site not in given], "no factors")):
        if names:
            raise ParameterError(f"attach: row_factors: {_named(names)}: got {got}, expected factors of each site, as "
                                 "the adapter's owner gives them")
    return {site: check_factors(f"attach: row_factors of site {site!r}", given[site], shapes[site][1],
                                16 if layer.weight.dtype == torch.float16 else 1024)
            for site, (*_, layer) in places.items()}


def check_factors(what, values, d_out, most):
    """Returns a float32 tensor of row factors. Raises unless they are d_out numbers from -most to most."""
    with np.errstate(over="ignore"):
        factors = torch.tensor(_float32(values, what))
    if factors.shape != (d_out,):
        raise ShapeError(f"{what}: got shape {list(factors.shape)}, expected [{d_out}], a number for each output")
    wrong = (~(factors.abs() <= most)).nonzero()  # NaN too
    if len(wrong):
        raise ParameterError(f"{what}: output {int(wrong[0])}: got {float(factors[wrong[0]]):g}, expected a number "
                             f"from -{most} to {most}, of DoRA near 1")
    return factors


def load_tensors(path):
    """Returns the tensors of a safetensors file by name."""
    try:
        import safetensors.torch
        return safetensors.torch.load_file(path)
    except ImportError as e:
        raise UnsupportedError("files of DoRA need the package safetensors, which PEFT and transformers have too: "
                               "pip install safetensors") from e
    except (OSError, safetensors.SafetensorError) as e:
        kind = FileError if isinstance(e, OSError) else FormatError
        raise kind(f"{os.fsdecode(path)}: {e}, expected a safetensors file") from e

"""Puts encrypted adapters into torch models: see `attach`."""

import contextlib
import threading

import torch

from .adapter import Adapter
from .errors import ParameterError, ShapeError, UnsupportedError
from .model import Client, Server, Session


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
            self._left = {name: deltas[name] for name in self._sites}
        return self._left.pop(site)


class EncryptedLinear(torch.nn.Module):
    """A linear layer with an encrypted adapter: ``base(x) + delta(x)`` for x of shape [..., in_features].

    The delta has no gradient, so the model must run under `torch.no_grad()`. Use `attach` for a whole model: q, k and
    v of a layer then share a request.
    """

    def __init__(self, base, session, site, shared=None):
        super().__init__()
        self.base = base
        self.site = site
        self._shared = shared or _SharedInput(session, [site])

    def forward(self, x):
        if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.base.parameters())):
            raise UnsupportedError("EncryptedLinear: the delta has no gradient, and gradients are recorded: run the "
                                   "model under torch.no_grad()")
        result = self.base(x)
        return result + self._shared.delta(self.site, x).to(result.dtype)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("base"), name)  # weight, bias, in_features

    def extra_repr(self):
        return f"site={self.site!r}"


class Attachment(contextlib.AbstractContextManager):
    """Keeps an adapter in a model until `detach()`, or the end of a `with` block, puts the model's own layers back."""

    def __init__(self, model, session, places):
        self.session = session
        self._model = model
        self._places = places  # (parent, name, layer)

    def detach(self):
        """Puts the model's own layers back."""
        for parent, name, layer in self._places:
            setattr(parent, name, layer)
        self._places = []

    def __exit__(self, *_):
        self.detach()


def attach(model: torch.nn.Module, adapter: "Adapter | Session", **options) -> Attachment:
    """Puts an encrypted adapter into a model: each site's `torch.nn.Linear` becomes an `EncryptedLinear`.

    adapter: a `Session`; or an `Adapter`, which is then served in this process, with the options of `tensafe.Server`.
    For hidden states with NaN or infinity 0 is sent, and `Attachment.session.bad_states` counts them. Sites are found by
    their module path; one of both may have more in front of it.
    Raises ParameterError for a site that the model does not have, ShapeError for one of another shape; the model is
    unchanged then.
    """
    if isinstance(adapter, Adapter):
        server = Server(adapter, **options)
        session = Client(server).connect(server)
    elif isinstance(adapter, Session) and not options:
        session = adapter
    else:
        raise TypeError(f"attach: got {type(adapter).__name__}" + (" and options" if options else "")
                        + ", expected a tensafe.Session, or a tensafe.Adapter with options")
    modules = dict(model.named_modules())
    places = []
    for (site, d_in, d_out), group in session._shapes():
        path = _path_of(site, modules)
        layer = modules[path]
        if not isinstance(layer, torch.nn.Linear):
            raise ParameterError(f"attach: site {site!r}: got a {type(layer).__name__}, expected a torch.nn.Linear")
        if (layer.in_features, layer.out_features) != (d_in, d_out):
            raise ShapeError(f"attach: site {site!r}: got a layer {layer.in_features} -> {layer.out_features}, "
                             f"expected {d_in} -> {d_out}")
        parent, _, name = path.rpartition(".")
        places.append((modules[parent], name, layer, site, group))
    groups = {}
    for *_, site, group in places:
        groups.setdefault(group, []).append(site)
    shared = {group: _SharedInput(session, sites) for group, sites in groups.items()}
    for parent, name, layer, site, group in places:
        setattr(parent, name, EncryptedLinear(layer, session, site, shared[group]))
    return Attachment(model, session, [place[:3] for place in places])


def _path_of(site, modules):
    if site in modules:
        return site
    found = [path for path in modules if path.endswith("." + site) or (path and site.endswith("." + path))]
    if len(found) != 1:
        raise ParameterError(f"attach: site {site!r} is {'several modules' if found else 'no module'} of the model"
                             + (f": {', '.join(found[:4])}" if found else ""))
    return found[0]

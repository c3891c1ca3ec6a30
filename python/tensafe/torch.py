"""Puts encrypted adapters into torch models: see `attach`."""

import collections.abc
import contextlib
import copy
import functools
import itertools
import math
import os
import threading
import time
import types
import warnings
from typing import Any, Iterable, Mapping, Optional, Union

import numpy as np
import torch

from .adapter import Adapter, _float32, count, expect
from .errors import FileError, FormatError, ParameterError, ShapeError, UnsupportedError
from .link import best_drafts
from .model import CLAMPED, Client, Server, Session, check_gains, estimate


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


class _Activated(_SharedInput):
    """Asks for positions from the invocation on alone: the others have no delta, and cost nothing."""

    def __init__(self, session, sites, invocation):
        super().__init__(session, sites)
        self._invocation = invocation
        self._widths = {site: d_out for site, (_, d_out, _) in session._shapes().items()}

    def delta(self, site, x):
        rows = self._invocation.rows(site, x.shape[:-1])
        delta = x.new_zeros(len(rows), self._widths[site])
        if rows.any():
            delta[rows] = super().delta(site, x.reshape(len(rows), -1)[rows])
        return delta.view(*x.shape[:-1], -1)


class _Invocation:
    """Knows in every call of a model which positions an activated adapter applies to, by PEFT's rule.

    They are those from the last occurrence of its tokens on: in the prompt, for all calls of a `generate`, and
    otherwise in a call's own input_ids. A row without the tokens has none.
    """

    NEVER = 2**62

    class _Now(threading.local):
        starts: Optional[torch.Tensor] = None  # of each row, within `generate`
        mask: Optional[torch.Tensor] = None  # [batch, positions], within a call

    def __init__(self, model, tokens):
        self._model, self._tokens, self._now = model, tokens, self._Now()
        self._wrappers = {}  # by name, with what the model's own dict had before
        for name, around in (("forward", self._call), ("generate", self._generate)):
            if hasattr(model, name):
                inner = getattr(model, name)
                wrapper = functools.wraps(inner)(functools.partial(around, inner))
                self._wrappers[name] = wrapper, vars(model).get(name)
                setattr(model, name, wrapper)

    def __deepcopy__(self, memo):
        return self  # `base_model` takes it out

    @classmethod
    def within(cls, function):
        """What a function was before such wrappers."""
        while isinstance(getattr(getattr(function, "func", None), "__self__", None), cls):
            function = function.args[0]
        return function

    def detach(self):
        self._tokens = None  # where others wrapped the wrappers, these stay
        for name, (wrapper, before) in self._wrappers.items():
            if vars(self._model).get(name) is wrapper:
                delattr(self._model, name)
                if before is not None:
                    setattr(self._model, name, before)

    def _starts(self, ids):
        if ids is None:
            raise UnsupportedError("an activated adapter: got no input_ids, expected them: nothing else shows where "
                                   "its invocation is")
        found = [_last(row, self._tokens) for row in ids.tolist()]
        return torch.tensor([self.NEVER if at is None else at for at in found], device=ids.device)

    def _generate(self, inner, *args, **kwargs):
        if self._tokens is None:
            return inner(*args, **kwargs)
        settings = kwargs.get("generation_config") or self._model.generation_config
        if kwargs.get("guidance_scale", getattr(settings, "guidance_scale", None)) not in (None, 1):
            raise UnsupportedError("an activated adapter: got guidance_scale, whose second text has no invocation of "
                                   "its own, expected none")
        ids = kwargs.get("input_ids", kwargs.get("inputs", args[0] if args else None))
        self._now.starts = self._starts(ids)
        if (seen := kwargs.get("attention_mask")) is not None:
            self._now.starts += seen.shape[-1] - ids.shape[1]  # where a cache comes with the new tokens alone
        try:
            return inner(*args, **kwargs)
        finally:
            self._now.starts = None

    def _call(self, inner, *args, **kwargs):
        if self._tokens is None:
            return inner(*args, **kwargs)
        ids = kwargs.get("input_ids", args[0] if args else None)
        starts = self._starts(ids) if self._now.starts is None else self._now.starts
        done = cache.get_seq_length() if (cache := _cache_of(kwargs)) is not None else 0
        if self._now.starts is None:
            if done and (starts == self.NEVER).any():
                raise UnsupportedError("an activated adapter: got a cache, and input_ids without its invocation, "
                                       "expected them with it: only generate() remembers where it was")
            starts = starts + done
        starts = starts.repeat_interleave(len(ids) // len(starts))  # several texts of a prompt
        self._now.mask = torch.arange(done, done + ids.shape[1], device=ids.device) >= starts[:, None]
        try:
            return inner(*args, **kwargs)
        finally:
            self._now.mask = None

    def rows(self, site, shape):
        """The mask of the rows of an input [*shape, d]; one of the last positions alone will do, as for `lm_head`."""
        mask = self._now.mask
        if mask is not None and len(shape) == 2:
            mask = mask[:, -shape[1]:]
        if mask is None or mask.numel() != math.prod(shape):
            raise UnsupportedError(f"site {site!r}: got hidden states {list(shape)} of an activated adapter and "
                                   f"{'no call' if mask is None else list(mask.shape)} of the model that it was "
                                   "attached to, expected one for each position")
        return mask.reshape(-1)


def _last(row, tokens, end=None):
    """Where a list of tokens occurs in a row for the last time (before `end`); None if it does not."""
    n = len(tokens)
    return next((at for at in range((len(row) if end is None else end) - n, -1, -1) if row[at:at + n] == tokens), None)


def _cache_of(kwargs):
    return kwargs.get("cache", kwargs.get("past_key_values"))


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

    def __init__(self, session, places, model, invocation):
        self.session = session
        self._places = places  # (parent, name, EncryptedLinear)
        self._model = getattr(model, "_orig_mod", model)
        self._invocation = invocation
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
        if self._invocation:
            self._invocation.detach()
        if places and (clamped := self.session.clamped_deltas - self._clamped_before):
            warnings.warn(CLAMPED.format(clamped), RuntimeWarning, stacklevel=2)
        if lost:
            raise ParameterError(f"detach: {_named(lost)}: got another layer than attach put there, and left it")

    def __exit__(self, *_):
        self.detach()

    def base_model(self, drafts: Optional[int] = None, *, lookup: bool = True, **link) -> torch.nn.Module:
        """Returns the model without adapters, which shares all weights, for `generate(..., assistant_model=)`.

        drafts: the number of tokens that it drafts before each pass of the adapted model: always that many, also where
            the text ends, but where the model's positions do. By default `tensafe.link.best_drafts` chooses.
        lookup: whether the drafts are what followed the text's last three tokens earlier, where they occurred.
        link: what `best_drafts` takes. By default the session's round trip, else 0; the time of the base's layers,
            measured now; and 12.5 MB/s.
        The text stays that of the adapted model alone. Transformers takes a batch of one here.
        Raises UnsupportedError for a model with recurrent states, ParameterError for one without `generate`.
        """
        model = self._model
        if not hasattr(model, "generation_config"):
            raise ParameterError(f"base_model: got a {type(model).__name__}, expected a model of transformers that can "
                                 "generate: attach to the whole model")
        if any(getattr(module, "_is_stateful", False) for module in model.modules()):
            raise UnsupportedError("base_model: got a model with recurrent states (linear attention), which cannot "
                                   "take rejected drafts back, expected attention alone: generate without drafts")
        memo = {id(tensor): tensor for tensor in itertools.chain(model.parameters(), model.buffers())}
        memo.update((id(module), module.base) for module in model.modules() if isinstance(module, EncryptedLinear))
        base = copy.deepcopy(model, memo)
        base.forward = _Invocation.within(base.forward)
        drafts = best_drafts(**self._link(base, link)) if drafts is None else count(drafts, "drafts")
        base.generation_config.update(num_assistant_tokens=drafts, num_assistant_tokens_schedule="constant",
                                      assistant_confidence_threshold=0)
        base.generate = functools.partial(_draft, _Invocation.within(base.generate), base, lookup)
        return base

    def _link(self, base, known):
        """What `best_drafts` is to know beside what is known, of private_n4096 with blocks."""
        groups = [(sum(rank for _, rank, *_ in sites), d, sum(d_out for *_, d_out, _ in sites))
                  for _, d, sites in self.session._core.groups
                  if any(layer.site == name for *_, layer in self._places for name, *_ in sites)]
        costs = [estimate(shape, tokens_ahead=_BLOCK) for shape in groups]
        result = {"groups": len(groups), "rate": 12.5e6, "budget": self.session.queries_left,
                  "round_trip": self.session.round_trip or 0.0,
                  "bytes_a_position": sum(cost["bytes_up"] + cost["bytes_down"] for cost in costs) / _BLOCK, **known}
        if "forward" not in known:
            with torch.no_grad():
                for _ in range(2):  # of which the first is slow
                    start = time.perf_counter()
                    base(torch.zeros(1, 1, dtype=torch.long, device=base.device))
            result["forward"] = time.perf_counter() - start
        return result


def _draft(generate, base, lookup, *args, **kwargs):
    """`generate`; as assistant, it always drafts as many tokens, of which a server sees the number: also where the text
    may be no longer, and transformers cuts what was accepted."""
    if not getattr(kwargs.get("generation_config"), "is_assistant", False):
        return generate(*args, **kwargs)
    config, cache = base.config.get_text_config(), _cache_of(kwargs)
    drafts = base.generation_config.num_assistant_tokens
    if (most := getattr(config, "max_position_embeddings", None)) and "input_ids" in kwargs:
        drafts = max(kwargs["max_new_tokens"], min(drafts, most - 1 - kwargs["input_ids"].shape[1]))
    if lookup and cache is not None and "input_ids" in kwargs:  # without a cache the caller keeps no masks
        ids, width = kwargs["input_ids"], config.vocab_size
        row = ids[0].tolist()
        if (at := _last(row, row[-3:], len(row) - 1)) is not None:
            for k in range(at + 3, at + 3 + drafts):
                row.append(row[k])  # which may be a draft
            scores = torch.full((drafts, 1, width), -math.inf, device=ids.device)
            scores[range(drafts), 0, row[-drafts:]] = 0  # each drawn with certainty
            return types.SimpleNamespace(sequences=ids.new_tensor([row]), scores=tuple(scores), cache=cache,
                                         past_key_values=cache)
    return generate(*args, **{**kwargs, "min_new_tokens": drafts, "max_new_tokens": drafts})


def attach(model: torch.nn.Module, adapter: "Adapter | Session", *, partial: bool = False,
           base_norms: Optional[Mapping[str, float]] = None,
           row_factors: "Union[str, os.PathLike[str], Mapping[str, Any], None]" = None,
           invocation_tokens: Optional[Iterable[int]] = None, **options) -> Attachment:
    """Puts an encrypted adapter into a model: the layer of each site becomes an `EncryptedLinear`.

    adapter: a `Session`; or an `Adapter`, which is then served in this process, with the options of `tensafe.Server`.
    partial: whether sites that the model does not have, or that the server does not keep to itself, are left out.
    base_norms: as for `tensafe.Client`; by default those of the layers, 1024 times as much where these are not float16,
        with a warning for quantised ones; {}: none.
    row_factors: for an adapter that was DoRA, by what each output of the layers, without bias, is multiplied: the file
        that `tensafe.dora.convert` wrote, or a mapping from all sites to arrays of shape [d_out].
    invocation_tokens: of activated LoRA, by default those of an `Adapter`; none: the adapter applies everywhere. In a
        row only positions from their last occurrence on are sent: in the prompt of `generate`, else in the input_ids.
    A site's layer, a `torch.nn.Linear` or transformers' `Conv1D`, is the module of its name; or all paths or all names
    have one prefix more, beside what torch.compile and other wrappers put into paths. For hidden states with NaN or
    infinity 0 is sent, and `Attachment.session.bad_states` counts them.
    Raises ParameterError for a site that is no module, or several, or one with another site, and for too large a gain
    or row factor; ShapeError for a layer or row factors of another shape; the model is unchanged then.
    """
    if isinstance(adapter, Adapter):
        shapes = {name: (site.d_in, site.d_out) for name, site in adapter.items()}
        invocation_tokens = adapter.invocation_tokens if invocation_tokens is None else invocation_tokens
    elif isinstance(adapter, Session) and not options:
        shapes = adapter._shapes()
    else:
        raise TypeError(f"attach: got {type(adapter).__name__}" + (" and options" if options else "")
                        + ", expected a tensafe.Session, or a tensafe.Adapter with options")
    tokens = [count(token, "invocation_tokens") for token in invocation_tokens or ()]
    if tokens and row_factors is not None:
        raise ParameterError("attach: got row_factors of an activated adapter, expected one or the other, as in PEFT")
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
    invocation = _Invocation(getattr(model, "_orig_mod", model), tokens) if tokens else None
    shared: dict = collections.defaultdict(lambda: _Activated(adapter, places, invocation) if invocation else
                                           _SharedInput(adapter, places))
    ours = [(*places[site][:2], EncryptedLinear(places[site][2], adapter, site, shared[group],
                                                 factors.get(site)))
            for site, (*_, group) in adapter._shapes().items() if site in places]
    for parent, name, layer in ours:
        setattr(parent, name, layer)
    return Attachment(adapter, ours, model, invocation)


def gradients(model: torch.nn.Module, adapter: Adapter, texts: "Iterable[tuple[Iterable[int], Iterable[int]]]") -> dict:
    """Returns the slopes of texts' log likelihood for `tensafe.trace`, under PEFT's names: float32, on the CPU.

    model: the base model, without the adapter, which is called with input_ids [1, tokens] and returns logits. adapter:
    the owner's, without marks. texts: tokens of a prompt, at least one, and of the answer to it, of which alone the
    likelihood counts. Answers that were drawn at temperature 1 say most.
    Raises ParameterError for an empty prompt or answer, or none, a model in training mode, whose dropout changes slopes,
    and a site that no text's likelihood depends on; as `attach` for sites that the model does not have.
    """
    if any(module.training for module in model.modules()):
        raise ParameterError("gradients: got a model in training mode, expected model.eval()")
    places = _places("gradients", model, {name: (site.d_in, site.d_out) for name, site in adapter.items()}, False)
    factors, hooks, likelihood = {}, [], None
    for name, (*_, layer) in places.items():
        a, b = (torch.tensor(x, device=layer.weight.device, requires_grad=True) for x in (adapter[name].a, adapter[name].b))
        factors.update({(name, "A"): a, (name, "B"): b})
        hooks.append(layer.register_forward_hook(
            lambda _, inputs, output, a=a, b=b, scale=adapter[name].scale:
            output + (scale * (inputs[0].to(a.dtype) @ a.T) @ b.T).to(output.dtype)))
    try:
        with torch.enable_grad():
            for prompt, answer in texts:
                prompt, answer = list(prompt), list(answer)
                if not prompt or not answer:
                    raise ParameterError(f"gradients: got {len(prompt)} tokens of a prompt and {len(answer)} of its answer, "
                                         "expected at least one of each")
                ids = torch.tensor([prompt + answer], device=next(model.parameters()).device)
                logits = model(input_ids=ids).logits[0, len(prompt) - 1:-1]
                likelihood = torch.log_softmax(logits.float(), -1).gather(1, ids[0, len(prompt):, None]).sum()
                if likelihood.requires_grad:
                    likelihood.backward(inputs=[*factors.values()])  # which adds to what they have
    finally:
        for hook in hooks:
            hook.remove()
    if likelihood is None:
        raise ParameterError("gradients: got no texts, expected at least one")
    if idle := dict.fromkeys(name for (name, _), factor in factors.items() if factor.grad is None):
        raise ParameterError(f"gradients: {_named(idle)}: no text's likelihood depends on it, expected layers that the "
                             "model calls, and gradients through it")
    return {f"base_model.model.{name}.lora_{matrix}.weight": factor.grad.cpu().numpy()
            for (name, matrix), factor in factors.items()}


_BLOCK = 38  # tokens, as tensafe-server has them by default
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

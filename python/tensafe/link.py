"""Tells what a link makes of speculative decoding: times are in seconds, rates in bytes a second."""

import collections
import contextlib
import json
import math
import os
import pathlib
from typing import Iterable, Optional, Union

from . import _core
from .adapter import count, expect, number
from .errors import FormatError, ParameterError, UnsupportedError
from .model import estimate

MOST_DRAFTS = 4


def tokens_a_pass(acceptance: float, drafts: int) -> float:
    """Returns the mean number of tokens that a pass of the adapted model adds to a text: ``1 + a + ... + a ** drafts``.

    acceptance: the probability a, 0 to 1, that the adapted model takes a draft after it took those before.
    """
    if not 0 <= number(acceptance, "acceptance") <= 1:
        raise ParameterError(f"tokens_a_pass: got the acceptance {acceptance}, expected 0 to 1")
    return sum(float(acceptance) ** k for k in range(count(drafts, "drafts") + 1))


def seconds_a_pass(drafts: int, *, round_trip: float, rate: float, groups: int, bytes_a_position: float,
                   forward: float = 0.0, draft_forward: Optional[float] = None) -> float:
    """Returns the time of a pass, which asks for a token and its drafts at once.

    groups: the inputs of the adapter, each of which waits for one round trip.
    bytes_a_position: up and down, of all groups together (`tensafe.estimate`).
    forward: the time of the local layers in a pass; draft_forward: of a draft, by default the same.
    Raises ParameterError for negative or infinite numbers and for a rate of 0.
    """
    draft_forward = forward if draft_forward is None else draft_forward
    for name, value in (("round_trip", round_trip), ("bytes_a_position", bytes_a_position), ("forward", forward),
                        ("draft_forward", draft_forward)):
        if not 0 <= number(value, name) < float("inf"):
            raise ParameterError(f"link: {name}: got {value}, expected 0 or more")
    if not number(rate, "rate") > 0:
        raise ParameterError(f"link: got a rate of {rate}, expected bytes a second")
    return (count(groups, "groups") * round_trip + forward + count(drafts, "drafts") * draft_forward
            + (drafts + 1) * bytes_a_position / rate)


def best_drafts(*, acceptance: float = 0.8, budget: Optional[int] = None, tokens: int = 1, **link) -> int:
    """Returns the constant number of drafts, 0 to 4, with which a text is written fastest within the budget.

    acceptance: as for `tokens_a_pass`; 0.6 for a strong style, 0.9 for a light touch.
    budget: the positions that are left (`Session.queries_left`), where there is a limit.
    tokens: that the text shall have: a number of drafts whose rejected positions leave too little is not chosen.
    link: what `seconds_a_pass` takes, and raises.
    """
    def seconds_a_token(drafts):
        return seconds_a_pass(drafts, **link) / tokens_a_pass(acceptance, drafts)

    def positions(drafts):
        return (drafts + 1) * max(1.0, tokens / tokens_a_pass(acceptance, drafts))

    return min((drafts for drafts in range(MOST_DRAFTS + 1)
                if drafts == 0 or budget is None or positions(drafts) <= budget), key=seconds_a_token)


SITES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_LARGEST = 2**20  # size of a layer, and bytes of a config.json
_MOST_LAYERS = 1024
_LONGEST = 128  # tokens of a block that clients use
_BLOCKS, _WINDOW = 2, 2**20  # of an input, and bytes of replies under way: include/tensafe/session/block_policy.hpp
# Measured (docs/benchmarks.md): tokens of a prompt that take the time of one, and what a prompt takes beside the rest,
# as blocks that are not used up and answers that wait for others.
_AT_ONCE, _BESIDE = 32, 1.35


def shapes_of(config: "Union[str, os.PathLike[str]]", sites: Iterable[str] = SITES, layers: Optional[int] = None,
              rank: int = 16) -> list:
    """Returns (rank, d_in, d_out) of each input of a Llama-like model's adapter, with sums over sites that share it.

    config: the model's config.json, or its folder.
    sites: some of `SITES`. layers: how many of the last layers are adapted; by default all.
    Raises OSError, FormatError, ParameterError, and UnsupportedError for MLPs of experts and for linear attention.
    """
    path = pathlib.Path(config)
    path = path / "config.json" if path.is_dir() else path
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    try:
        if len(content) > _LARGEST:
            raise ValueError(f"more than {_LARGEST} bytes")
        values = expect(json.loads(content), dict, "the file", "an object")
    except (ValueError, TypeError, RecursionError) as e:
        raise FormatError(f"{path}: {e}: expected a model's config.json") from e

    def size(key, default=None, most=_LARGEST):
        got = default if values.get(key) is None else values[key]
        if type(got) is not int or not 1 <= got <= most:
            raise FormatError(f"{path}: {key}: got {str(got)[:32]!r}, expected a whole number from 1 to {most}")
        return got

    d, heads, mlp = size("hidden_size"), size("num_attention_heads"), size("intermediate_size")
    head, of = size("head_dim", max(d // heads, 1)), size("num_hidden_layers", most=_MOST_LAYERS)
    q, kv = heads * head, size("num_key_value_heads", heads) * head
    shapes = dict(zip(SITES, ((d, q), (d, kv), (d, kv), (q, d), (d, mlp), (d, mlp), (mlp, d))))
    sites, adapted = set(sites), of if layers is None else count(layers, "layers")
    if not sites or sites - set(SITES):
        raise ParameterError(f"sites: got {', '.join(sorted(sites - set(SITES))) or 'none'}, "
                             f"expected of {', '.join(SITES)}")
    for name, value, most in (("layers", adapted, of), ("rank", rank, _LARGEST)):
        if not 1 <= count(value, name) <= most:
            raise ParameterError(f"{name}: got {value}, expected 1 to {most}")
    if "linear_attention" in str(values.get("layer_types")) or (
            sites & set(SITES[4:]) and any("expert" in key for key in values)):
        raise UnsupportedError(f"{path}: got a model of experts or linear attention, expected one as Llama; of experts "
                               "sites of attention can be estimated")
    inputs: dict = {}
    for site in filter(sites.__contains__, SITES):
        key = _core.shared_input(f"model.layers.0.{'mlp' if site in SITES[4:] else 'self_attn'}.{site}")
        rows, _, d_out = inputs.get(key, (0, 0, 0))
        inputs[key] = rows + rank, shapes[site][0], d_out + shapes[site][1]
    return list(inputs.values()) * adapted


def estimate_link(shapes: Iterable, *, round_trip: float, rate: float, acceptance: float = 0.8, forward: float = 0.0,
                  prompt: int = 500, memory: Optional[float] = None, parameters: str = "private_n4096",
                  mode: str = "client_held_b", tokens_ahead: Optional[int] = None) -> dict:
    """Returns what a text costs with an adapter on a server behind a link; the time of the server is left out.

    shapes: (rank, d_in, d_out) of each input, as `shapes_of` gives them.
    round_trip, rate, acceptance, forward: as for `best_drafts`. prompt: tokens before the text.
    memory: bytes of the client's for blocks; None: as much as they take.
    tokens_ahead: of a block; by default those with the fewest bytes, 0 where each token goes alone.
    Raises ParameterError for what a Server or a link cannot be.
    """
    inputs = collections.Counter(shapes)

    def position(block):
        costs = [(estimate(shape, parameters, mode=mode, tokens_ahead=block), n) for shape, n in inputs.items()]
        return [sum(cost[way] * n for cost, n in costs) / max(block, 1) for way in ("bytes_up", "bytes_down")]

    def memory_of(block):
        return 8 * _BLOCKS * block * sum(n * (2 * d + rows) for (rows, d, _), n in inputs.items())

    ways = {}
    for block in (0, *range(2, _LONGEST + 1)) if tokens_ahead is None else (tokens_ahead,):
        with contextlib.suppress(*[ParameterError] if block and tokens_ahead is None else []):  # too long to protect A
            if block == tokens_ahead or memory is None or memory_of(block) <= memory:
                ways[block] = position(block)
    block, (up, down) = min(ways.items(), key=lambda way: sum(way[1]))
    groups = sum(inputs.values())
    link = {"round_trip": round_trip, "rate": rate, "groups": groups, "bytes_a_position": up + down, "forward": forward}
    drafts = best_drafts(acceptance=acceptance, **link)
    gain, seconds = tokens_a_pass(acceptance, drafts), seconds_a_pass(drafts, **link)
    trips = max(1, math.ceil(count(prompt, "prompt") * down / groups / _WINDOW))
    return {"tokens_a_second": gain / seconds if seconds else math.inf, "drafts": drafts, "tokens_ahead": block,
            "client_memory": memory_of(block), "inputs": groups, "position_up": round(up), "position_down": round(down),
            "bytes_a_token": round((drafts + 1) * (up + down) / gain), "positions_a_token": (drafts + 1) / gain,
            "prompt_seconds": _BESIDE * (trips * groups * round_trip
                                         + prompt * (max(up, down) / rate + forward / _AT_ONCE))}

"""Predicts what an adapter costs over a link: seconds, bytes and hidden states. Units are seconds and bytes a second."""

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
_WINDOW = 2**20  # bytes of replies under way, of include/tensafe/session/block_policy.hpp
_BLOCKS = 2  # of an input at a time, of the same
_LARGEST_CONFIG = 2**20  # bytes
_LARGEST_SIZE = 2**20  # of a layer
_MOST_LAYERS = 1024


def tokens_a_pass(acceptance: float, drafts: int) -> float:
    """Returns the mean number of tokens that a pass over `drafts` drafted tokens gives, 1 to drafts + 1.

    acceptance: the probability, 0 to 1, that a drafted token is the model's, its predecessors being so.
    """
    return math.fsum(_in_range("acceptance", acceptance, 0, 1) ** i for i in range(count(drafts, "drafts") + 1))


def seconds_a_pass(drafts: int, *, groups: int, round_trip: float, position_bytes: float, rate: float,
                   forward: float = 0.0, draft_forward: Optional[float] = None) -> float:
    """Returns the seconds of one pass of the model over a token and `drafts` drafted ones.

    groups: inputs of sites, each of which is asked for by itself: a round trip each.
    round_trip: of a message and its reply, in seconds; rate: of the link, in bytes a second.
    position_bytes: of one hidden state of every input, up and down, with its share of a block.
    forward, draft_forward: seconds of the model itself for a pass and for a drafted token; by default they are equal.
    """
    draft = forward if draft_forward is None else draft_forward
    return (groups * _in_range("round_trip", round_trip, 0, 3600) + _in_range("forward", forward, 0, 3600)
            + drafts * _in_range("draft_forward", draft, 0, 3600)
            + (drafts + 1) * position_bytes / _in_range("rate", rate, 1, 1e15))


def best_drafts(acceptance: float, *, groups: int, round_trip: float, position_bytes: float, rate: float,
                forward: float = 0.0, draft_forward: Optional[float] = None, tokens: int = 1,
                queries_left: Optional[int] = None, most: int = MOST_DRAFTS) -> int:
    """Returns the constant number of drafts, 0 to `most`, that gives the most tokens a second; 0 where none helps.

    tokens: that are to come. Their hidden states, (drafts + 1) / tokens_a_pass for each, stay within `queries_left`,
        unless it is None; where not even those without drafts do, the answer is 0.
    Other parameters are those of `seconds_a_pass`. Raises ParameterError for values out of range.
    """
    def fits(drafts):
        return queries_left is None or tokens * (drafts + 1) <= queries_left * tokens_a_pass(acceptance, drafts)

    def speed(drafts):
        seconds = seconds_a_pass(drafts, groups=groups, round_trip=round_trip, position_bytes=position_bytes, rate=rate,
                                 forward=forward, draft_forward=draft_forward)
        return tokens_a_pass(acceptance, drafts) / seconds if seconds else math.inf

    return max((k for k in range(count(most, "most") + 1) if k == 0 or fits(k)), key=speed)  # of equals the smallest

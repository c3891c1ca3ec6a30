"""Tells what a link makes of speculative decoding: times are in seconds, rates in bytes a second."""

import contextlib
import http.client
import os
import ssl
import time
import urllib.parse
from typing import Optional, Union

from .adapter import count, number
from .errors import ParameterError

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


def round_trip_to(url: str, ca: "Union[str, os.PathLike[str]]" = "") -> float:
    """Returns the time of a round trip to a `tensafe-server`: of three requests for its health the shortest.

    url, ca: as for `tensafe.connect`. Raises OSError if the server cannot be reached.
    """
    to = urllib.parse.urlsplit(url)
    host = to.hostname or ""
    connection = (http.client.HTTPSConnection(host, to.port, timeout=10,
                                              context=ssl.create_default_context(cafile=os.fspath(ca)))
                  if to.scheme == "wss" else http.client.HTTPConnection(host, to.port, timeout=10))

    def once():
        start = time.perf_counter()
        connection.request("HEAD", "/healthz")
        connection.getresponse().read()
        return time.perf_counter() - start

    with contextlib.closing(connection):
        connection.connect()
        return min(once() for _ in range(3))

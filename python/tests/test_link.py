"""The number of drafts for a link."""

import pytest

import tensafe
from tensafe.link import best_drafts, seconds_a_pass, tokens_a_pass

# SmolLM2-135M with its last 8 layers adapted, rank 16: four inputs a layer, 0.63 MB a position, 12 ms forward.
LAST_8 = dict(groups=32, bytes_a_position=0.63e6, forward=0.012)


def test_tokens_of_a_pass():
    assert [tokens_a_pass(0.5, drafts) for drafts in range(3)] == [1, 1.5, 1.75]
    assert [tokens_a_pass(a, 4) for a in (0, 1)] == [1, 5]


def test_seconds_of_a_pass():
    link = dict(round_trip=0.02, rate=12.5e6, groups=32, bytes_a_position=1.25e6)
    assert seconds_a_pass(0, **link) == pytest.approx(32 * 0.02 + 0.1)
    assert seconds_a_pass(3, **link, forward=0.5) == pytest.approx(32 * 0.02 + 0.4 + 0.5 + 3 * 0.5)
    assert seconds_a_pass(3, **link, forward=0.5, draft_forward=0.1) == pytest.approx(32 * 0.02 + 0.4 + 0.5 + 3 * 0.1)


@pytest.mark.parametrize("link, expected", [
    (dict(round_trip=0, rate=12.5e6), 0),  # drafts of the base cost what they save
    (dict(round_trip=0, rate=float("inf"), forward=0), 0),
    (dict(round_trip=0.005, rate=12.5e6), 3), (dict(round_trip=0.02, rate=2.5e6), 3),  # the cost model's own choices
    (dict(round_trip=0.02, rate=12.5e6), 4), (dict(round_trip=1, rate=float("inf")), 4),  # at most
    (dict(round_trip=0.02, rate=12.5e6, acceptance=0), 0),
    (dict(round_trip=0.02, rate=12.5e6, acceptance=1), 4),
    (dict(round_trip=0.0005, rate=1e6), 0),  # bytes bind
    (dict(round_trip=0.02, rate=12.5e6, budget=0), 0), (dict(round_trip=0.02, rate=12.5e6, budget=1), 0),
    (dict(round_trip=0.02, rate=12.5e6, budget=4), 3), (dict(round_trip=0.02, rate=12.5e6, budget=5), 4),
    (dict(round_trip=0.02, rate=12.5e6, budget=100, tokens=100), 0),  # not one position may be rejected
    (dict(round_trip=0.02, rate=12.5e6, budget=136, tokens=100), 3),  # 1.355 positions a token, with 4 drafts 1.487
    (dict(round_trip=0.02, rate=12.5e6, budget=149, tokens=100), 4),
])
def test_best_number_of_drafts(link, expected):
    assert best_drafts(**{**LAST_8, **link}) == expected


@pytest.mark.parametrize("bad", [dict(round_trip=-1), dict(round_trip=float("nan")), dict(rate=0), dict(acceptance=1.5),
                                 dict(acceptance=float("nan")), dict(groups=-1), dict(forward=float("inf"))])
def test_bad_numbers(bad):
    with pytest.raises(tensafe.ParameterError, match="got"):
        best_drafts(**{**LAST_8, "round_trip": 0.02, "rate": 1e6, **bad})

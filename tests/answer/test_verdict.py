"""The verdict: its three outcomes, their edges, and the margin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.answer.verdict import judge
from trainledger.base.units import GIB


@pytest.mark.parametrize(
    ("usable", "outcome"),
    [(30, "fits"), (31, "fits"), (29, "tight"), (20, "tight"), (10, "tight"), (9, "does-not-fit"), (0, "does-not-fit")],
)
def test_outcomes_and_their_edges(usable: int, outcome: str) -> None:
    verdict = judge(usable, 10, 20, 30)
    assert verdict.outcome == outcome
    assert verdict.margin == usable - 20


def test_nothing_to_compare_with() -> None:
    verdict = judge(None, 10, 20, 30)
    assert (verdict.outcome, verdict.margin) == (None, None)
    assert "no device" in verdict.reasons[0]


def test_reasons_carry_the_numbers() -> None:
    assert "79.00 GiB" in judge(79 * GIB, 60 * GIB, 70 * GIB, 78 * GIB).reasons[0]
    assert "9.00 GiB left" in judge(79 * GIB, 60 * GIB, 70 * GIB, 78 * GIB).reasons[1]
    assert "2.00 GiB short" in judge(79 * GIB, 70 * GIB, 81 * GIB, 90 * GIB).reasons[1]


@pytest.mark.parametrize("band", [(20, 10, 30), (10, 30, 20), (-1, 0, 1)])
def test_a_band_out_of_order_is_a_mistake(band: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="a band is"):
        judge(100, *band)
    with pytest.raises(ValueError, match="not negative"):
        judge(-1, 1, 2, 3)


@given(st.lists(st.integers(0, 2**62), min_size=3, max_size=3).map(sorted), st.integers(0, 2**62))
def test_the_outcome_follows_the_band(band: list[int], usable: int) -> None:
    low, expected, high = band
    verdict = judge(usable, low, expected, high)
    assert verdict.outcome == ("fits" if high <= usable else "does-not-fit" if low > usable else "tight")
    assert verdict.margin is not None
    if verdict.outcome != "tight":
        assert (verdict.margin >= 0) == (verdict.outcome == "fits")

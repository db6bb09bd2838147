"""The search for the largest value that fits, on needs that are made up: even, steep, uneven, and with holes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.answer.bands import Band
from trainledger.answer.fit_search import Counted, Span, first_that_fits, largest
from trainledger.answer.need import Trial

USABLE = 10**6
Need = Callable[[int], int]


def trial(value: int, need: int, exact: bool, problem: str = "") -> Trial:
    return Trial(value, (), Band(need, need, need), 0, need, USABLE, "loss", None, exact, problem)


def tries(need: Need, less: float = 0.9) -> Counted:
    """Trials of a need; the bound is a part of it."""
    return Counted(
        lambda value: trial(value, round(need(value) * less), False),
        lambda value: trial(value, need(value), True),
        lambda: None,
    )


@given(
    st.integers(1, 5000), st.integers(0, 900_000), st.integers(1, 200), st.sampled_from([1, 64]), st.floats(0.5, 1.0)
)
def test_one_step_more_does_not_fit(per: int, held: int, start: int, step: int, less: float) -> None:
    span = Span(step, step * 10**7, step, start * step)
    found = largest(span, tries(lambda value: held + per * value, less))
    if held + per * step > USABLE:
        assert found.best is None
        return
    assert found.best is not None
    value = int(found.best.value)
    assert (value - span.low) % step == 0
    assert held + per * value <= USABLE < held + per * (value + step)


@given(st.integers(1, 10**9), st.integers(1, 400))
def test_steep_needs(scale: int, start: int) -> None:
    def need(value: int) -> int:
        return value * value * scale // 1000

    found = largest(Span(1, 10**6, 1, start), tries(need))
    if need(1) > USABLE:
        assert found.best is None
        return
    assert found.best is not None
    assert need(int(found.best.value)) <= USABLE < need(int(found.best.value) + 1)


@given(st.lists(st.integers(0, 60_000), min_size=40, max_size=40))
def test_where_needs_are_uneven_the_neighbours_are_looked_at(noise: list[int]) -> None:
    def need(value: int) -> int:
        return 30_000 * value + noise[value % len(noise)]

    found = largest(Span(1, 1000, 1, 3), tries(need, 0.95))
    if found.best is None:
        assert need(1) > USABLE
        return
    value = int(found.best.value)
    assert need(value) <= USABLE
    assert found.next is not None
    assert found.next.value == value + 1
    assert not found.next.fits
    beyond = [int(one.value) for one in found.beyond]
    assert beyond == [one for one in (value + 2, value + 3) if need(one) <= USABLE]
    assert (found.below is not None) == (value > 1 and need(value - 1) > USABLE)


def test_the_end_of_what_is_tried() -> None:
    found = largest(Span(1, 8, 1, 2), tries(lambda value: value))
    assert found.best is not None
    assert (found.best.value, found.next) == (8, None)
    only = largest(Span(4, 4, 4, 4), tries(lambda value: value))
    assert only.best is not None
    assert only.best.value == 4


def test_values_that_are_no_plan_end_the_search() -> None:
    def made(value: int) -> Trial:
        return trial(value, value, True, "too long" if value > 9 else "")

    found = largest(Span(1, 1000, 1, 2), Counted(made, made, lambda: None))
    assert found.best is not None
    assert found.next is not None
    assert (found.best.value, found.next.value, found.next.problem) == (9, 10, "too long")


def test_few_whole_estimates_are_made() -> None:
    made: list[int] = []
    counted = Counted(
        lambda value: trial(value, 600 * value, False),
        lambda value: trial(value, 700 * value, True),
        lambda: made.append(1),
    )
    assert largest(Span(1, 10**6, 1, 1), counted).best is not None
    assert len(made) < 12


@pytest.mark.parametrize(
    ("needs", "best", "before"), [([9, 7, 5], 2, 1), ([1, 9], 0, None), ([9, 9], None, 1), ([0, 9, 5], 2, 1)]
)
def test_first_that_fits(needs: list[int], best: int | None, before: int | None) -> None:
    def choice(number: int, need: int) -> Callable[[], Trial]:
        return lambda: trial(number, need * USABLE // 6, True, "" if need else "no plan")

    found, refused = first_that_fits(choice(number, need) for number, need in enumerate(needs))
    assert (found.best.value if found.best else None) == best
    assert (found.next.value if found.next else None) == before
    assert len(refused) == needs.count(0)

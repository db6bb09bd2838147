"""Demands on numbers, and the nearest number that fulfils them all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainledger.base.demands import REACH, Demand, divides, multiple, nearest_number, problems_of


def test_the_fix_fulfils_every_demand_on_the_same_key() -> None:
    found = problems_of(
        [divides("tp", 5, 32, "the heads"), divides("tp", 5, 24, "the experts"), multiple("m", 6, 4, "pp")]
    )
    assert [str(problem) for problem in found] == [
        "tp: 5 does not divide the heads (32); a divisor of 32 is needed. The nearest that can is 4.",
        "tp: 5 does not divide the experts (24); a divisor of 24 is needed. The nearest that can is 4.",
        "m: 6 is no multiple of pp; a multiple of 4 is needed. The nearest that can is 4.",
    ]


def test_demands_that_hold_are_no_problems() -> None:
    assert problems_of([divides("tp", 4, 32, "the heads"), multiple("m", 8, 4, "pp")]) == ()


def test_no_fix_where_nothing_can() -> None:
    (problem,) = problems_of([Demand("tp", 3, "found 3", "nothing", lambda _: False)])
    assert problem.fix == ""


def test_far_away_one_is_still_tried() -> None:
    far = 4 * REACH
    assert nearest_number(far, [lambda n: n == 1]) == 1
    assert nearest_number(far, [lambda n: n == 2]) is None


@given(st.integers(1, 500), st.integers(1, 500))
def test_the_nearest_divisor_is_the_nearest(value: int, size: int) -> None:
    near = nearest_number(value, [lambda n: size % n == 0])
    divisors = [one for one in range(1, size + 1) if size % one == 0]
    assert near == min(divisors, key=lambda one: (abs(one - value), one))

"""Whether rows hold padding, by what the plan says of its samples."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.base.problems import InputError
from trainledger.plan.lengths import alone, at_longest, differ, pads, several

TWO = {"micro_batch": 2, "sequence": 256}


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        (None, False),
        ({"longest": 200}, False),  # others may be as long
        ({"median": 90, "longest": 200}, True),
        ({"median": 90}, True),  # shorter than the plan's sequence
        ([90, 90, 90], False),
        ([90, 200], True),
        ([300, 400], False),  # all are cut
        ({"median": 300, "longest": 400}, False),
        ({"padded": True}, True),
        ({"median": 90, "longest": 200, "padded": False}, False),
        ({"median": 90, "longest": 200, "packing": "padding-free"}, False),
        ({"median": 90, "longest": 200, "packing": "packed"}, False),
    ],
)
def test_rows_are_padded_where_samples_differ(lengths: Any, expected: bool) -> None:
    plan = plan_of(batch=TWO, lengths=lengths)
    assert pads(plan) is expected
    assert pads(at_longest(plan)) is expected


def test_a_lone_row_holds_no_padding_unless_the_plan_says_so() -> None:
    one = {**TWO, "micro_batch": 1}
    assert not pads(plan_of(batch=one, lengths=[90, 200]))
    assert pads(plan_of(batch=one, lengths={"padded": True}))
    pair = plan_of(batch=one, lengths=[90, 200], task="dpo")
    assert several(pair)
    assert pads(pair)


def test_samples_that_are_dropped_pad_nothing() -> None:
    assert not pads(plan_of(batch=TWO, lengths={"values": [90, 90, 400], "longer": "drop"}))
    assert differ(plan_of(batch=TWO, lengths=[90, 200]), 200)
    assert not differ(plan_of(batch=TWO, lengths=[90, 200]), 90)


def test_a_plan_at_one_length_keeps_its_padding() -> None:
    at = alone(plan_of(batch=TWO, lengths={"median": 90, "longest": 200}), 90)
    assert at.batch.sequence == 90
    assert pads(at)
    assert alone(plan_of(batch=TWO, lengths=[90, 90]), 90).lengths is None


def test_a_longest_below_a_listed_sample_is_refused() -> None:
    with pytest.raises(InputError, match=r"a longest of 70 below a listed sample's 1,000"):
        plan_of(lengths={"longest": 70, "values": [50, 1000]})
    assert plan_of(lengths={"longest": 2000, "values": [50, 1000]}).lengths

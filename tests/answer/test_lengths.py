"""The longest sample against the median's, padded, packed and end to end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.answer.lengths import at_lengths
from trainledger.plan.lengths import at_length, at_longest, lengths_of

VALUES = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 400]
BATCH = {"micro_batch": 2, "sequence": 256}
LENGTHS = {"median": 120, "longest": 240}
KINDS: dict[str, dict[str, Any]] = {"known": {}, "padded": {"padded": True}, "alike": {"padded": False}}


def test_lengths_are_those_given_or_counted() -> None:
    plan = plan_of(lengths=VALUES)
    assert lengths_of(plan) == {"median": 60, "9 of 10 samples": 100, "longest": 400}
    assert lengths_of(plan_of(lengths={"longest": 300, "median": 40})) == {"median": 40, "longest": 300}


@pytest.mark.parametrize(("packing", "shape"), [("none", (2, 90)), ("padding-free", (1, 180)), ("packed", (2, 256))])
def test_rows_of_a_micro_batch(packing: str, shape: tuple[int, int]) -> None:
    plan = plan_of(batch=BATCH, lengths={"longest": 90, "packing": packing})
    batch = at_longest(plan).batch
    assert (batch.micro_batch, batch.sequence) == shape


def test_a_longer_sample_is_cut() -> None:
    assert at_length(plan_of(batch=BATCH, lengths=VALUES), 400).batch.sequence == 256
    assert at_longest(plan_of(batch=BATCH)).batch.sequence == 256


def test_the_estimate_is_the_longest_sample_s() -> None:
    def peak(**sections: Any) -> int:
        return estimate(plan_of(**sections)).peak.allocated.expected

    assert peak(batch=BATCH, lengths={"longest": 90}) == peak(batch={**BATCH, "sequence": 90})
    assert peak(batch=BATCH, lengths={"longest": 90, "packing": "padding-free"}) == peak(
        batch={"micro_batch": 1, "sequence": 180}
    )
    assert peak(batch=BATCH, lengths={"longest": 90, "packing": "packed"}) == peak(batch=BATCH)


def test_the_longest_is_out_of_memory_where_the_median_fits() -> None:
    device = {"name": "small", "memory": "700MiB"}
    found = at_lengths(plan_of(batch={"micro_batch": 8, "sequence": 4096}, lengths=[64, 64, 64, 4096], device=device))
    assert [one.name for one in found] == ["median", "9 of 10 samples", "longest"]
    assert [one.outcome for one in found][::2] == ["tight", "does-not-fit"]
    sizes = [one.allocated.expected for one in found]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 10 * sizes[0]


def test_packed_rows_have_one_length() -> None:
    assert at_lengths(plan_of(lengths={"longest": 90, "packing": "packed"})) == ()
    assert at_lengths(plan_of()) == ()


def test_an_evaluation_follows_the_lengths() -> None:
    plan = plan_of(batch=BATCH, lengths={"longest": 90, "packing": "padding-free"}, evaluation={"micro_batch": 8})
    evaluation = at_longest(plan).evaluation
    assert evaluation is not None
    assert (evaluation.micro_batch, evaluation.sequence) == (1, 720)


def test_a_sequence_that_is_spread_is_padded_to_its_pieces() -> None:
    sections = {"parallel": {"cp": 2, "tp": 2, "sp": True, "dp": 1}, "batch": BATCH, "lengths": {"longest": 90}}
    assert at_longest(plan_of(**sections)).batch.sequence == 96


def test_shorter_micro_batches_hold_padding_too() -> None:
    """The median's estimate has a mask as the longest's has."""
    found = {name: at_lengths(plan_of(batch=BATCH, lengths={**LENGTHS, **more})) for name, more in KINDS.items()}
    for padded, alike in zip(found["padded"], found["alike"], strict=True):
        assert padded.allocated.expected > alike.allocated.expected
    assert found["known"] == found["padded"]

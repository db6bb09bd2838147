"""What a plan needs: the cheap bound is never above the whole estimate."""

from __future__ import annotations

import pytest

from tests.answer.test_fit import BASE
from trainledger.answer.changed import Change
from trainledger.answer.need import asked
from trainledger.facts.fit_knobs import CONFIDENCE

SETS = (
    (),
    (Change("batch.micro_batch", 7),),
    (Change("stack.recompute", {"kind": "full"}), Change("batch.sequence", 4096)),
    (Change("parallel", {"strategy": "fsdp2", "world": 4}),),
    (Change("stack.framework", "deepspeed"), Change("parallel", {"strategy": "zero2", "world": 4})),
    (Change("stack.allocator", {"expandable_segments": True}),),
    (Change("stack.allocator", {"backend": "cudaMallocAsync"}),),
)


@pytest.mark.parametrize("changes", SETS)
@pytest.mark.parametrize("confidence", [CONFIDENCE.expected, CONFIDENCE.high])
def test_the_bound_is_below_the_estimate(changes: tuple[Change, ...], confidence: float) -> None:
    question = asked(BASE, confidence)
    bound, whole = question.bound(1, changes), question.exact(1, changes)
    assert bound.problem == whole.problem == ""
    assert bound.at <= whole.at
    assert not bound.fits
    assert whole.margin == whole.usable - whole.at


def test_what_is_no_plan_says_why() -> None:
    question = asked(BASE, CONFIDENCE.high)
    for trial in (question.bound(0, [Change("batch.micro_batch", 0)]), question.exact(0, [Change("task", "grpo")])):
        assert trial.problem
        assert not trial.fits
        assert not trial.open

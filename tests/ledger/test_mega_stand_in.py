"""What stands in for the output layer's weight gradient where that is added to its buffer in place."""

from __future__ import annotations

import pytest

from tests.ledger.test_megatron import HIDDEN, LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate

SIZE = 2 * LLAMA["vocab_size"] * HIDDEN


def found(release: str) -> Estimate:
    versions = {"torch": "2.13.0", "megatron-core": release}
    stack = {"kernels": ["te"], "attention": "fused", "options": {}, "versions": versions}
    return estimate(plan_of(LLAMA, stack=stack, parallel={"options": {"gradient_accumulation_fusion": True}}))


def standing(release: str) -> list[str]:
    """Names of stand-ins of the output layer's size that are there as a step's forward peaks."""
    answer = found(release)
    moment = next(one for one in answer.ledger.moments if one.name == "step 2: forward")
    lines = (answer.ledger.lines[line] for line, copies in moment.live if copies)
    return [one.name for one in lines if one.unit == SIZE and "unused gradient" in one.name]


@pytest.mark.parametrize(("release", "count"), [("0.12.0", 0), ("0.13.1", 0), ("0.14.0", 1), ("0.19.2", 1)])
def test_it_is_kept_since_a_release(release: str, count: int) -> None:
    assert len(standing(release)) == count


def test_before_it_is_made_in_each_backward() -> None:
    lines = found("0.12.0").ledger.lines
    assert SIZE in [one.unit for one in lines if one.name.endswith("unused gradient of a weight")]

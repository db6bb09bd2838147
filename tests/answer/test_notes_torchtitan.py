"""Notes on plans that torchtitan runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_experts_torchtitan import MOE
from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate

NEWEST, SPRING, OLD = "abcdef0", "1690e0ae", "0.1.0"


def uncounted(version: str, model: dict[str, Any] = LLAMA, **stack: Any) -> str:
    plan = plan_of(model, stack={"framework": "torchtitan", "versions": {"torchtitan": version}, **stack})
    return "\n".join(estimate(plan).notes.uncounted)


@pytest.mark.parametrize(
    "version, attention, said",
    [(NEWEST, "sdpa", True), (NEWEST, "flex", False), (SPRING, "sdpa", False), (OLD, "sdpa", False)],
)
def test_the_newest_runs_flex_attention(version: str, attention: str, said: bool) -> None:
    assert ("runs flex attention" in uncounted(version, attention=attention)) is said


@pytest.mark.parametrize("version, said", [(SPRING, True), (OLD, False)])
def test_head_and_loss_chunk_by_chunk_are_not_covered(version: str, said: bool) -> None:
    assert ("chunk by chunk" in uncounted(version, loss="chunked")) is said


@pytest.mark.parametrize("model, said", [(MOE, True), (LLAMA, False)])
def test_the_sort_behind_experts_may_be_too_much(model: dict[str, Any], said: bool) -> None:
    assert ("through a sort" in uncounted(SPRING, model)) is said


def test_a_commit_that_is_not_known_is_named() -> None:
    assert f"{NEWEST!r} is no release or commit" in uncounted(NEWEST)

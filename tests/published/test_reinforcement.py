"""What documents say of reinforcement learning: a resident reference of 2 to 4 bytes a parameter, and more than SFT."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.acting import rows_of
from trainledger.answer.estimate import estimate, states_of

TRL = {"versions": {"torch": "2.14.1", "transformers": "5.24.0", "trl": "1.16.0", "accelerate": "1.15.0"},
       "loss": "fused-linear", "recompute": "full"}  # fmt: skip
MODEL = "qwen2.5-1.5b"


@pytest.mark.parametrize(("dtype", "each"), [("bf16", 2), ("fp32", 4)])
def test_a_reference_is_two_to_four_bytes_a_parameter(dtype: str, each: int) -> None:
    roles: dict[str, Any] = {"reference": {"precision": {"weights": dtype}}}
    found = estimate(plan_of(MODEL, task="grpo", roles=roles, stack=TRL))
    (held,) = {share.bytes for row in rows_of(found.plan, found.groups) for share in row.shares
               if share.role == "reference" and row.phase == "training"}  # fmt: skip
    assert held == pytest.approx(each * found.parameters.total, rel=0.001)


def test_reinforcement_presses_harder_than_supervised_training() -> None:
    plain = estimate(plan_of(MODEL, task="sft", stack=TRL))
    roles: dict[str, Any] = {"reference": {}, "rollout": {"engine": {"sequences": 8}}}
    found = estimate(plan_of(MODEL, task="grpo", roles=roles, stack=TRL))
    pairs = estimate(plan_of(MODEL, task="dpo", stack=TRL))
    assert found.peak.allocated.expected > plain.peak.allocated.expected + 1.99 * plain.parameters.total
    assert pairs.peak.allocated.expected > plain.peak.allocated.expected + 1.99 * plain.parameters.total
    assert states_of(pairs.ledger)["weights"] == 2 * states_of(plain.ledger)["weights"]

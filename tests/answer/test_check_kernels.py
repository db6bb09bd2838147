"""Kernel sets that patch a model with experts in more than one way are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError

DENSE: dict[str, Any] = {
    "model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 256,
    "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size_per_layer_input": 0,
}  # fmt: skip
MIXED = {**DENSE, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}


def test_a_model_with_experts_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        estimate(plan_of(MIXED, stack={"kernels": ["liger"]}))
    assert [problem.path for problem in caught.value.problems] == ["stack.kernels"]


def test_a_dense_one_keeps_less() -> None:
    plain, fused = (
        max(one.allocated for one in estimate(plan_of(DENSE, stack={"kernels": kernels})).ledger.moments)
        for kernels in ([], ["liger"])
    )
    assert fused < plain

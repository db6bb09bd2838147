"""What is trained by pattern: modules are told apart, layers by number are refused, not counted as frozen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError


@pytest.mark.parametrize("pattern", ["layers.1", "model.layers", "layers.*", "no_such_module"])
def test_what_no_module_within_a_layer_fits_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="trainable"):
        estimate(plan_of(trainable=["q_proj", pattern]))


@pytest.mark.parametrize("patterns", [["q_proj"], ["mlp", "lm_head"], ["embed_tokens"], ["input_layernorm"]])
def test_modules_are_told_apart(patterns: list[str]) -> None:
    found = estimate(plan_of(trainable=patterns))
    assert 0 < found.parameters.trainable < found.parameters.total
    trained = [line for line in found.ledger.lines if line.account.value == "gradients"]
    assert trained


@pytest.mark.parametrize(
    "sections",
    [
        {"stack": {"loss": "fused-linear"}},
        {
            "stack": {"framework": "torchtitan", "versions": {"torch": "2.13.0"}},
            "parallel": {"strategy": "fsdp2", "dp": 2, "pp": 2, "schedule": "1f1b"},
            "batch": {"accumulation": 4},
        },
    ],
    ids=["fused", "pipeline"],
)
def test_nothing_trained_has_no_backward(sections: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="found 'none' without an adapter"):
        estimate(plan_of(trainable="none", **sections))
    estimate(plan_of(trainable="none"))

"""Strategies that shard weights of one dtype together refuse a layer that mixes them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.test_released import KEYS
from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError

V3 = {"model_type": "deepseek_v3", **KEYS}
LOW = {"weights": "bf16", "compute": "bf16", "gradients": "bf16", "autocast": False}
MIXED = {"weights": "fp32", "compute": "bf16", "gradients": "bf16", "autocast": False}
LORA = {"kind": "lora", "r": 4, "targets": ["o_proj"], "dtype": "bf16"}


def sections(strategy: str, precision: dict[str, Any], release: str = "5.24.0", **more: Any) -> dict[str, Any]:
    return {
        "precision": precision, "parallel": {"strategy": strategy, "world": 4},
        "stack": {"versions": {"torch": "2.13.0", "transformers": release}}, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    "given", [sections("fsdp2", LOW), sections("fsdp1", LOW), sections("fsdp1", LOW, adapter=LORA)]
)
def test_a_router_in_fp32_beside_16_bits_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        estimate(plan_of(V3, **given))
    (problem,) = caught.value.problems
    assert problem.path == "precision.weights"
    assert "mlp.gate.weight" in problem.found


@pytest.mark.parametrize(
    "given",
    [
        sections("fsdp2", MIXED),
        sections("fsdp1", MIXED),
        sections("fsdp2", LOW, adapter=LORA),
        sections("fsdp2", LOW, "5.22.0"),
        sections("zero3", LOW),
        sections("ddp", LOW),
    ],
)
def test_what_shares_a_dtype_is_not(given: dict[str, Any]) -> None:
    assert estimate(plan_of(V3, **given)).ledger.moments

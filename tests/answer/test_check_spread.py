"""Optimizers and quantised bases where weights are flattened or spread: what cannot run is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.check_spread import spread_problems
from trainledger.answer.estimate import estimate, states_of
from trainledger.base.problems import InputError

LORA = {"kind": "lora", "r": 8, "targets": "all-linear"}


def refused(**sections: Any) -> str:
    with pytest.raises(InputError) as caught:
        estimate(plan_of(LLAMA, **sections))
    return str(caught.value)


@pytest.mark.parametrize("name", ["muon", "galore-adamw", "apollo-mini", "galore-adafactor"])
@pytest.mark.parametrize("strategy", ["fsdp1", "zero1", "zero2", "zero3"])
def test_optimizers_of_matrices_cannot_step_flat_parts(name: str, strategy: str) -> None:
    optimizer = {"name": name, "implementation": None}
    text = refused(optimizer=optimizer, parallel={"strategy": strategy, "world": 2})
    assert f"optimizer.name: found '{name}' under {strategy}; it reads matrices" in text


@pytest.mark.parametrize(("name", "strategy"), [("muon", "ddp"), ("muon", "fsdp2"), ("adafactor", "fsdp1")])
def test_others_are_estimated(name: str, strategy: str) -> None:
    optimizer = {"name": name, "implementation": None}
    plan = plan_of(LLAMA, optimizer=optimizer, parallel={"strategy": strategy, "world": 2})
    assert not list(spread_problems(plan))
    assert estimate(plan).peak.allocated.expected


@pytest.mark.parametrize("name", ["adamw-8bit", "paged-adamw-32bit"])
@pytest.mark.parametrize("strategy", ["fsdp2", "hsdp"])
def test_bitsandbytes_takes_no_dtensor(name: str, strategy: str) -> None:
    parallel = {"strategy": strategy, "world": 4, "shard": 2 if strategy == "hsdp" else 4}
    text = refused(optimizer={"name": name, "implementation": None}, parallel=parallel)
    assert f"found '{name}' under {strategy}; bitsandbytes' kernels take plain tensors" in text
    assert "adamw-torchao-8bit" in text


@pytest.mark.parametrize(
    ("kind", "strategy", "reason"),
    [
        ("int8", "fsdp1", "hold all their codes beside"),
        ("int8", "fsdp2", "hold all their codes beside"),
        ("int8", "zero3", "hold all their codes beside"),
        ("fp8", "fsdp1", "weights of one dtype together"),
    ],
)
def test_codes_that_cannot_be_spread_are_named(kind: str, strategy: str, reason: str) -> None:
    text = refused(adapter=LORA, quantization={"kind": kind}, parallel={"strategy": strategy, "world": 2})
    assert f"quantization.kind: found '{kind}' under {strategy}" in text
    assert reason in text


def test_axolotl_patches_fsdp2_for_eight_bits() -> None:
    parallel = {"strategy": "fsdp2", "world": 2}
    stack = {"versions": {"axolotl": "0.18.0"}, "recompute": "full"}
    base = {"adapter": LORA, "quantization": {"kind": "int8"}, "stack": stack}
    plans = plan_of("llama-3.2-1b", parallel=parallel, **base), plan_of("llama-3.2-1b", **base)
    spread, whole = (states_of(estimate(one).ledger)["weights"] for one in plans)
    assert whole / 2 < spread < whole * 0.51


def test_a_quantised_base_is_not_coded_once_more() -> None:
    parallel = {"strategy": "zero3", "world": 2, "options": {"zero_quantized_weights": True}}
    assert "found true beside nf4" in refused(adapter=LORA, quantization={"kind": "nf4"}, parallel=parallel)

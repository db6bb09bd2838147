"""What readers of plans under Megatron-Core are told, and what a minimal plan is filled with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plan.test_megatron_keys import LLAMA
from trainledger.answer.estimate import Estimate, estimate
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.plan_file import draft_of

MOE = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


def draft(model: dict[str, Any] = LLAMA, framework: str = "megatron", **sections: Any) -> Draft:
    data = {"model": model, "batch": {"micro_batch": 1, "sequence": 128}, "stack": {"framework": framework}}
    for name, section in sections.items():
        data[name] = {**data.get(name, {}), **section}
    return draft_of(Document(data, {}))


def told(key: str, **sections: Any) -> bool:
    found: Estimate = estimate(draft(**sections).plan)
    return any(note.startswith(f"{key}:") for note in found.notes.warnings)


@pytest.mark.parametrize(
    ("key", "sections", "without"),
    [
        ("parallel.sp", {"parallel": {"tp": 2}}, {"parallel": {"tp": 2, "sp": True}}),
        (
            "stack.recompute",
            {"stack": {"recompute": "full"}},
            {"stack": {"recompute": {"kind": "full", "method": "uniform"}}},
        ),
        (
            "batch.accumulation",
            {"parallel": {"pp": 4}, "batch": {"accumulation": 2}},
            {"parallel": {"pp": 4}, "batch": {"accumulation": 4}},
        ),
        ("batch.expert_load", {"model": MOE}, {"model": MOE, "batch": {"expert_load": "worst"}}),
        ("parallel.pp", {"parallel": {"pp": 2}}, {}),
    ],
)
def test_a_reader_is_told(key: str, sections: dict[str, Any], without: dict[str, Any]) -> None:
    assert told(key, **sections)
    assert not told(key, **without)


def test_a_minimal_plan_is_filled_with_megatrons_own() -> None:
    found = draft()
    assert not [one for one in found.defaulted if "Transformers" in str(one.source)]
    values = {one.path: one.value for one in found.defaulted}
    assert values["precision.gradients"] == values["precision.master"] == "fp32"
    assert values["stack.kernels"] == ["te"]
    assert values["stack.loss"] == "vocab-parallel"
    assert values["parallel.strategy"] == "megatron-ddp"
    assert values["optimizer.implementation"] == "apex-fused"


@pytest.mark.parametrize(
    ("framework", "path", "value"),
    [
        ("megatron", "parallel.options.moe_token_dispatcher_type", "allgather"),
        ("megatron", "parallel.options.moe_grouped_gemm", False),
        ("megatron-bridge", "parallel.options.moe_token_dispatcher_type", "alltoall"),
        ("megatron-bridge", "parallel.options.moe_grouped_gemm", True),
        ("megatron-bridge", "parallel.strategy", "megatron-distopt"),
        ("megatron-bridge", "stack.loss", "vocab-parallel-fused"),
        ("nemo", "parallel.strategy", "megatron-distopt"),
    ],
)
def test_frameworks_differ(framework: str, path: str, value: object) -> None:
    assert {one.path: one.value for one in draft(MOE, framework).defaulted}[path] == value


def test_megatrons_own_layers_take_no_kernel_of_transformer_engine() -> None:
    values = {one.path: one.value for one in draft(stack={"options": {"transformer_impl": "local"}}).defaulted}
    assert values["stack.attention"] == "unfused"
    assert "stack.kernels" not in values

"""FSDP2 by formula and by trace: the largest instant of every phase of one rank."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.evidence.trace.families import FAMILIES
from tests.plans import plan_of
from tests.witness.runs import RECOMPUTE, VERSIONS, traced
from tests.witness.steps import phases
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.session import where_of

PURE = {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16", "reduce": "bf16"}
MIXED = {"weights": "fp32", "compute": "bf16", "autocast": False, "gradients": "fp32"}
CASES: list[tuple[str, dict[str, Any], str, bool | int, int]] = [
    ("llama", PURE, "none", True, 8),
    ("llama", {**MIXED, "reduce": "fp32"}, "full", False, 8),
    ("qwen2", {**MIXED, "reduce": "bf16"}, "none", True, 3),
    ("gpt2", {**MIXED, "reduce": "fp32"}, "full-reentrant", True, 4),
    ("gemma3_text", PURE, "full", True, 16),
    ("gemma4_text", PURE, "full", True, 8),
    ("bert", {**MIXED, "reduce": "fp32"}, "none", False, 2),
    ("llama", {**MIXED, "reduce": "fp32"}, "none", 2, 8),
    ("qwen2", PURE, "full", 4, 16),
    ("deepseek_v2", {**MIXED, "reduce": "bf16"}, "none", True, 4),
    ("deepseek_v3", {**MIXED, "reduce": "fp32"}, "none", True, 8),
    ("mixtral", {**MIXED, "reduce": "bf16"}, "none", True, 2),
]
LORA = {"kind": "lora", "r": 16, "targets": "all-linear", "dtype": "fp32"}
ACCELERATE: list[tuple[str, dict[str, Any]]] = [
    ("llama", {}),
    ("qwen3", {"adapter": LORA, "precision": {**PURE, "gradients": "fp32"}}),
    ("llama", {"adapter": {**LORA, "kind": "dora"}, "precision": {**PURE, "gradients": "fp32"}}),
    ("llama", {"batch": {"micro_batch": 1, "sequence": 384, "accumulation": 2}}),
    ("llama", {"trainable": ["model.layers.1", "lm_head"]}),
]


@pytest.mark.parametrize(("family", "precision", "recompute", "reshard", "ranks"), CASES)
def test_phases_agree(family: str, precision: dict[str, Any], recompute: str, reshard: bool | int, ranks: int) -> None:
    plan = plan_of(
        FAMILIES[family],
        precision=precision,
        batch={"micro_batch": 1, "sequence": 384, "accumulation": 1},
        parallel={"strategy": "fsdp2", "dp": ranks, "reshard_after_forward": reshard},
        stack={
            "versions": VERSIONS,
            "recompute": RECOMPUTE[recompute],
            "allocator": {"expandable_segments": True},
        },
    )
    ours = phases(estimate(plan).ledger.moments)
    theirs = phases(trace_of(traced(plan, where_of(job_of(plan))), conf=read_conf(plan.stack.allocator)).moments)
    assert set(ours) == set(theirs)
    far = {name: (ours[name], size) for name, size in theirs.items() if abs(ours[name] / size - 1) > 3e-3}
    assert not far


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "sections"), ACCELERATE)
def test_accelerates_units_agree(family: str, sections: dict[str, Any]) -> None:
    """Embedding apart, last norm and head together; adapters in fp32 gathered in 16 bits; no reduction but the last."""
    batch = {"micro_batch": 1, "sequence": 384, "accumulation": 1}
    plan = plan_of(
        FAMILIES[family],
        parallel={"strategy": "fsdp2", "dp": 4},
        stack={
            "versions": {**VERSIONS, "accelerate": "1.15.0", "peft": "0.21.2"},
            "recompute": RECOMPUTE["none"],
            "allocator": {"expandable_segments": True},
        },
        **{"precision": PURE, "batch": batch, **sections},
    )
    ours = phases(estimate(plan).ledger.moments)
    theirs = phases(trace_of(traced(plan, where_of(job_of(plan))), conf=read_conf(plan.stack.allocator)).moments)
    assert ours == pytest.approx(theirs, rel=3e-3)

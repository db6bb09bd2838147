"""How long answers take that are made of many estimates, and those of models that run their experts one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from trainledger.answer.advise import advise
from trainledger.answer.estimate import estimate
from trainledger.answer.fit import Wanted, fit
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of, read_draft
from trainledger.show.document import document

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DOCUMENT_SECONDS = 4.0  # sixteen stages, each replayed
ADVISE_SECONDS = 20.0
FIT_SECONDS = 15.0
EXPERTS_SECONDS = 10.0  # 128 experts in each of 48 layers
ZERO_70B: dict[str, Any] = {
    "model": "llama-3-70b",
    "task": "sft",
    "precision": {"weights": "bf16", "compute": "bf16", "gradients": "bf16", "master": "fp32"},
    "optimizer": {"name": "adamw", "grad_clip": 1.0},
    "batch": {"micro_batch": 1, "sequence": 4096, "accumulation": 4},
    "parallel": {"strategy": "zero3", "world": 32},
    "stack": {
        "framework": "deepspeed",
        "versions": {"torch": "2.13.0", "transformers": "5.24.0", "deepspeed": "0.19.6"},
        "recompute": {"kind": "full", "reentrant": False},
    },
    "device": "h100-80gb",
}
TITAN_405B: dict[str, Any] = {
    "model": "llama-3.1-405b",
    "task": "pretrain",
    "precision": {"weights": "fp32", "compute": "bf16", "reduce": "fp32"},
    "optimizer": {"name": "adamw", "implementation": "fused", "grad_clip": 1.0},
    "batch": {"micro_batch": 2, "sequence": 8192},
    "parallel": {"strategy": "fsdp2", "world": 512, "tp": 8, "sp": True},
    "stack": {"framework": "torchtitan", "versions": {"torch": "2.13.0"}, "recompute": {"kind": "full"}},
    "device": "h100-80gb",
}
OFFLOADED: dict[str, Any] = {
    **ZERO_70B,
    "parallel": {"strategy": "zero3", "world": 8},
    "offload": {"optimizer": "cpu", "params": "cpu"},
    "node": {"ranks": 8, "memory": "512GiB"},
}
LOOPED: dict[str, Any] = {
    **ZERO_70B,
    "model": "qwen3-30b-a3b",
    "precision": {"weights": "bf16", "compute": "bf16", "gradients": "bf16"},
    "batch": {"micro_batch": 1, "sequence": 4096, "accumulation": 2},
    "parallel": {"strategy": "fsdp2", "world": 16},
    "stack": {
        "framework": "transformers",
        "versions": {"torch": "2.9.0", "transformers": "4.57.1"},
        "recompute": {"kind": "full", "reentrant": False},
    },
}
LARGE = {"zero-3 70b": ZERO_70B, "torchtitan 405b": TITAN_405B}


def bench_document_of_every_stage(benchmark: BenchmarkFixture) -> None:
    """What `estimate --json` holds of DeepSeek-V3 on sixteen stages: the peak of every one of them."""
    draft = read_draft(str(EXAMPLES / "deepseek-v3-megatron.yaml"))
    benchmark.pedantic(lambda: document(estimate(draft.plan), draft), rounds=3)
    assert benchmark.stats.stats.median < DOCUMENT_SECONDS


@pytest.mark.parametrize("plan", [*LARGE.values(), OFFLOADED], ids=[*LARGE, "zero-3 70b, host"])
def bench_advise(benchmark: BenchmarkFixture, plan: dict[str, Any]) -> None:
    """Every change of a large plan, with combinations."""
    data = draft_of(Document(plan, {})).data
    benchmark.pedantic(advise, args=(data,), rounds=1)
    assert benchmark.stats.stats.median < ADVISE_SECONDS


@pytest.mark.parametrize("plan", LARGE.values(), ids=LARGE)
def bench_fit(benchmark: BenchmarkFixture, plan: dict[str, Any]) -> None:
    """The largest micro-batch and sequence of a large plan."""
    data = draft_of(Document(plan, {})).data
    benchmark.pedantic(fit, args=(data, Wanted()), rounds=1)
    assert benchmark.stats.stats.median < FIT_SECONDS


def bench_experts_one_by_one(benchmark: BenchmarkFixture) -> None:
    """Experts in a loop, as Transformers ran them before 5.0."""
    plan = draft_of(Document(LOOPED, {})).plan
    benchmark.pedantic(estimate, args=(plan,), rounds=1)
    assert benchmark.stats.stats.median < EXPERTS_SECONDS

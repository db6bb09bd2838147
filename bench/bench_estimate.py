"""How long a ledger and a whole estimate take once everything is imported."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from trainledger.answer.estimate import architecture_of, device_of, estimate
from trainledger.answer.tables import Role, roles_of
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of, read_draft
from trainledger.ledger.rank import rank_ledger
from trainledger.model.build import build

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.yaml"))
# The promise; others run more recompute, buckets or micro-batches. Under ZeRO-3 every call of a module is followed, in
# the three micro-batches that differ.
LEDGER_SECONDS = {"llama-3-70b": 0.005, "qwen2.5-7b-zero3": 0.05, "llama-3.1-8b-ulysses": 0.1}
OTHERS_SECONDS = 0.01
ESTIMATE_SECONDS = 0.5
HUGE_SECONDS = 0.5
ROLES_SECONDS = 5.0  # each of its 16 stages replayed, with what is in flight told apart
PIPELINES_SECONDS = 2.0  # several stages, each replayed over rounds of micro-batches
HUGE = {
    "model": {
        "model_type": "megatron-gpt", "hidden_size": 12288, "num_hidden_layers": 128, "num_attention_heads": 96,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 49152, "num_experts": 256,
        "num_experts_per_tok": 8, "moe_intermediate_size": 4096, "shared_expert_intermediate_size": 4096,
        "vocab_size": 262144, "position_embedding_type": "rope", "normalization": "RMSNorm",
        "gated_linear_unit": True, "hidden_act": "silu", "add_bias_linear": False, "hidden_dropout": 0.0,
        "attention_dropout": 0.0, "tie_word_embeddings": False,
    },
    "batch": {"micro_batch": 1, "sequence": 8192, "accumulation": 64},
    "parallel": {
        "strategy": "megatron-distopt", "world": 32768, "tp": 4, "sp": True, "pp": 16, "vpp": 4, "ep": 128, "etp": 1,
        "options": {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True, "moe_permute_fusion": True},
    },
    "stack": {"framework": "megatron", "recompute": {"kind": "full", "method": "uniform", "num_layers": 1}},
    "device": "b200",
}  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def bench_ledger(benchmark: BenchmarkFixture, path: Path) -> None:
    """The median of a ledger by formula, from the checked plan to every moment, stays below the promise."""
    plan = read_draft(str(path)).plan
    architecture = architecture_of(device_of(plan))
    benchmark(lambda: rank_ledger(plan, build(plan.keys()), architecture))
    promise = PIPELINES_SECONDS if plan.parallel.pp > 1 else LEDGER_SECONDS.get(path.stem, OTHERS_SECONDS)
    assert benchmark.stats.stats.median < promise


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def bench_estimate(benchmark: BenchmarkFixture, path: Path) -> None:
    """The median of an estimate with its replay on the allocator stays below the promise."""
    plan = read_draft(str(path)).plan
    benchmark(estimate, plan)
    assert benchmark.stats.stats.median < (PIPELINES_SECONDS if plan.parallel.pp > 1 else ESTIMATE_SECONDS)


def bench_five_trillion_parameters(benchmark: BenchmarkFixture) -> None:
    """A mixture of experts of five trillion parameters on 32,768 devices."""
    plan = draft_of(Document(HUGE, {})).plan
    benchmark(estimate, plan)
    assert benchmark.stats.stats.median < HUGE_SECONDS


def bench_every_role_of_five_trillion_parameters(benchmark: BenchmarkFixture) -> None:
    """The same, and each stage's own peak."""
    plan = draft_of(Document(HUGE, {})).plan

    def answered() -> tuple[Role, ...]:
        return roles_of(estimate(plan), "all")

    assert len(benchmark(answered)) == plan.parallel.pp
    assert benchmark.stats.stats.median < ROLES_SECONDS

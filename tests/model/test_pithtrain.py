"""PithTrain's models, and a run of its pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.problems import InputError
from trainledger.model.build import model_of
from trainledger.model.program import Experts, Norm, NormKind

MIXTURE: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1024,
    "tie_word_embeddings": False, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
}  # fmt: skip


def run(
    model: dict[str, Any] = MIXTURE,
    accumulation: int = 64,
    rank: int | None = None,
    more: dict[str, str] | None = None,
    **parallel: Any,
) -> Estimate:
    given = {
        "strategy": "fsdp2", "dp": 2, "ep": 2, "pp": 2, "vpp": 2, "schedule": "dualpipev",
        "reshard_after_forward": False, **parallel,
    }  # fmt: skip
    precision = {"weights": "fp32", "compute": "bf16", "gradients": "fp32", "reduce": "fp32"}
    stack = {"framework": "pithtrain", "versions": {"pithtrain": "287070f", **(more or {})}, "attention": "flash"}
    batch = {"sequence": 512, "accumulation": accumulation}
    return estimate(plan_of(model, parallel=given, precision=precision, stack=stack, batch=batch), rank)


def test_norms_are_pytorchs_and_experts_have_three_weights() -> None:
    model = model_of(run().plan)
    specs = [op.spec for op in model.blocks[0].ops]
    assert {spec.kind for spec in specs if isinstance(spec, Norm)} == {NormKind.RMS_NATIVE}
    assert all(spec.up is not None for spec in specs if isinstance(spec, Experts))


def test_a_stage_holds_no_buffers_for_what_it_receives() -> None:
    live = {
        answer.ledger.lines[number].name
        for answer in (run(),)
        for moment in answer.ledger.moments
        for number, _ in moment.live
    }
    assert "hidden states received" not in live
    assert "mlp.experts.w1 (not reduced yet)" in live


def test_micro_batches_beyond_those_that_repeat_add_nothing() -> None:
    few, some, many = (run(accumulation=count).steps.allocated.expected for count in (4, 32, 128))
    assert few < some == many


def test_what_torchtitans_older_pipelines_return_is_none_of_its_own() -> None:
    """A release of torchtitan's beside it moves nothing."""
    plain, older = (
        run(accumulation=8, rank=0, more={"torch": "2.7.0", **more}).ledger for more in ({}, {"torchtitan": "9dec370"})
    )
    assert older.segments == plain.segments


def test_other_families_and_schedules_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        run(LLAMA)
    assert [one.path for one in caught.value.problems] == ["model.model_type"]
    with pytest.raises(InputError) as caught:
        run(schedule="1f1b", vpp=1)
    assert [one.path for one in caught.value.problems] == ["parallel.schedule"]

"""The pipeline that a plan runs."""

from __future__ import annotations

from typing import Any

from trainledger.lines.pipeline import pipeline_of
from trainledger.lines.schedules import Flavour, Pipeline
from trainledger.plan.read import read_plan
from trainledger.plan.schema import Plan


def plan_of(framework: str = "megatron", **parallel: Any) -> Plan:
    batch = {"micro_batch": 1, "sequence": 8, "accumulation": 8}
    return read_plan(
        {"model": {"model_type": "llama"}, "batch": batch, "parallel": parallel, "stack": {"framework": framework}}
    )


def test_the_plans_schedule_ranks_micro_batches_and_chunks() -> None:
    assert pipeline_of(plan_of(pp=4)) == Pipeline("1f1b", 4, 8)
    assert pipeline_of(plan_of("torchtitan", pp=4, schedule="zb-v")) == Pipeline("zb-v", 4, 8, 2, flavour=Flavour.TORCH)
    options = {"microbatch_group_size_per_virtual_pipeline_stage": 5, "overlap_moe_expert_parallel_comm": True}
    assert pipeline_of(plan_of(pp=4, vpp=3, options=options)) == Pipeline("interleaved", 4, 8, 3, 5, ahead=1)
    assert pipeline_of(plan_of(pp=4, options=options)).ahead == 0


def test_without_a_pipeline_one_micro_batch_is_in_flight() -> None:
    assert pipeline_of(plan_of()) == Pipeline("1f1b", 1, 8)

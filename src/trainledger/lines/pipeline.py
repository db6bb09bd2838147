"""The pipeline of a plan: its schedule, ranks, micro-batches and chunks."""

from __future__ import annotations

from trainledger.lines.schedules import Flavour, Pipeline
from trainledger.plan.degrees import accumulation
from trainledger.plan.schema import Plan
from trainledger.plan.stages import chunks_of, schedule_of

GROUP = "microbatch_group_size_per_virtual_pipeline_stage"
OVERLAP = "overlap_moe_expert_parallel_comm"
_TORCH = ("torch", "torchtitan")  # frameworks that run torch.distributed.pipelining


def pipeline_of(plan: Plan) -> Pipeline:
    """How the plan's pipeline runs a step; with pp 1 it is a pipeline of one rank.

    Expert communication that is overlapped costs Megatron-Core one more forward ahead where chunks interleave.
    """
    schedule, chunks, options = schedule_of(plan), chunks_of(plan), plan.parallel.options
    flavour = Flavour.TORCH if plan.stack.framework in _TORCH else Flavour.MEGATRON
    ahead = int(schedule == "interleaved" and flavour is Flavour.MEGATRON and bool(options.get(OVERLAP)))
    return Pipeline(schedule, plan.parallel.pp, accumulation(plan), chunks, options.get(GROUP), flavour, ahead)

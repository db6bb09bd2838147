"""The order in which a stage of Megatron-Core runs micro-batches of a step, without the rounds that repeat others.

Source: megatron/core/pipeline_parallel/schedules.py (0.19.2).
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from trainledger.facts.megatron import SETTLED
from trainledger.lines.actions import Action
from trainledger.lines.pipeline import pipeline_of
from trainledger.lines.schedules import GPIPE, actions
from trainledger.plan.schema import Plan


def order_of(plan: Plan, stage: int) -> tuple[Action, ...]:
    """The actions of a stage in one step, without rounds of micro-batches that repeat those before them."""
    pipeline = pipeline_of(plan)
    if pipeline.schedule != GPIPE:  # which keeps them all in flight
        count = fewest(pipeline.micro_batches, pipeline.ranks, pipeline.in_a_row)
        pipeline = replace(pipeline, micro_batches=count)
    return actions(pipeline, stage)


def fewest(micro_batches: int, ranks: int, group: int) -> int:
    """Micro-batches after which every further round is as the one before: what is in flight no longer grows."""
    unit = lcm(ranks, group)
    kept = SETTLED.rounds * unit + unit - 1
    return micro_batches - max(micro_batches - kept, 0) // unit * unit

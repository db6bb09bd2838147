"""Formats of checkpoints that the plan's framework cannot write."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.answer.saved import format_of, inner_format
from trainledger.base.problems import Problem
from trainledger.facts.checkpoints import MERGED
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.megatron import FRAMEWORKS as MEGATRON
from trainledger.plan.engines import ZERO, deepspeed_of
from trainledger.plan.schema import Plan

BY_SHARDS = ("fsdp-full", "fsdp-sharded", "torch-sharded")


def save_problems(plan: Plan) -> Iterator[Problem]:
    """A format of another engine, or of an adapter where there is none."""
    named = plan.save.format if plan.save else None
    if named is None:
        return
    needed = _needed(plan, named)
    if needed:
        own = format_of(plan.model_copy(update={"save": None}))
        fix = f"Leave it out: {plan.stack.framework} writes {inner_format(plan, own)}."
        yield Problem("save.format", f"found {named!r}", needed, fix)


def _needed(plan: Plan, named: str) -> str:
    """What a format needs that the plan has not; empty where it has all."""
    if named == "adapter" and plan.adapter is None:
        return "an adapter is needed"
    if named == "deepspeed" and not deepspeed_of(plan) and plan.stack.framework != "megatron-deepspeed":
        return "DeepSpeed writes it"
    if named == LOW_LEVEL.framework and plan.stack.framework != LOW_LEVEL.framework:
        return "ColossalAI writes it"
    if named.startswith("megatron-") and plan.stack.framework not in MEGATRON:
        return "Megatron-Core writes it"
    if named in MERGED and plan.stack.framework != named:
        return f"{named} writes it"
    if named in BY_SHARDS and plan.parallel.strategy in ZERO:
        return "DeepSpeed's partitions are no shards of PyTorch's"
    return ""

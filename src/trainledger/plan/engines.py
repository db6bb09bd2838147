"""Which engine runs a plan, where several of its keys say so."""

from __future__ import annotations

from trainledger.plan.schema import Plan

ZERO = ("zero1", "zero2", "zero3")


def deepspeed_of(plan: Plan) -> bool:
    """Whether DeepSpeed runs the plan: its strategies, its framework, or its stage given as an option."""
    given = plan.parallel
    return given.strategy in ZERO or plan.stack.framework == "deepspeed" or "stage" in given.options

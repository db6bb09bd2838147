"""Which engine runs a plan, where several of its keys say so."""

from __future__ import annotations

from trainledger.facts.deepspeed import STAGES
from trainledger.plan.schema import Plan

ZERO = tuple(STAGES)


def deepspeed_of(plan: Plan) -> bool:
    """Whether DeepSpeed runs the plan: its strategies, its framework, or its stage given as an option."""
    given = plan.parallel
    return given.strategy in ZERO or plan.stack.framework == "deepspeed" or "stage" in given.options

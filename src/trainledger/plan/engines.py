"""Which engine runs a plan, where several of its keys say so."""

from __future__ import annotations

from trainledger.facts.deepspeed import STAGES
from trainledger.plan.schema import Plan

ZERO = tuple(STAGES)


def deepspeed_of(plan: Plan) -> bool:
    """Whether DeepSpeed runs the plan: its strategies, its framework, or its stage given as an option."""
    given = plan.parallel
    return given.strategy in ZERO or plan.stack.framework == "deepspeed" or "stage" in given.options


def looks_for_unused(plan: Plan) -> bool:
    """Whether DistributedDataParallel looks for parameters without a gradient in every step; it does not with a graph
    that is said to be static."""
    options = plan.parallel.options
    ddp = plan.parallel.strategy == "ddp" and not deepspeed_of(plan)
    return ddp and bool(options.get("find_unused_parameters")) and not options.get("static_graph")

"""Linear attention (Qwen3-Next, Qwen3.5) where what runs it is not known here: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.model.operations_linear import DeltaRule
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

TAPS = "conv1d"


def linear_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of a model with layers of linear attention."""
    if not any(isinstance(op.spec, DeltaRule) for block in model.blocks for op in block.ops):
        return
    ranks = degrees(plan)
    for axis, count in (("tp", ranks.tp), ("cp", ranks.cp)):
        if count > 1:
            allowed = "linear attention on whole heads and whole sequences can be estimated so far"
            yield Problem(f"parallel.{axis}", f"found {count} for {model.family}", allowed, "Set it to 1.")
    if plan.stack.kernels:
        named = ", ".join(plan.stack.kernels)
        allowed = "what fused kernels put in place of its modules is not written yet"
        yield Problem("stack.kernels", f"found {named} for {model.family}", allowed, "Leave them out.")
    targets = plan.adapter.targets if plan.adapter is not None else None
    if isinstance(targets, list | tuple) and any(name.rpartition(".")[2] == TAPS for name in targets):
        allowed = "adapters of linear layers can be estimated so far, not of a convolution"
        yield Problem("adapter.targets", f"found {TAPS!r} for {model.family}", allowed, "Leave it out.")

"""Linear attention (Qwen3-Next, Qwen3.5) and convolutions over time (LFM2) where what runs them is not known here: each
by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.model.operations_linear import CausalConv
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

TAPS = ("conv1d", "conv")  # what models call their convolution


def linear_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of a model with such layers."""
    if not any(isinstance(op.spec, CausalConv) for block in model.blocks for op in block.ops):
        return
    ranks = degrees(plan)
    for axis, count in (("tp", ranks.tp), ("cp", ranks.cp)):
        if count > 1:
            allowed = "convolutions and linear attention on whole heads and sequences can be estimated so far"
            yield Problem(f"parallel.{axis}", f"found {count} for {model.family}", allowed, "Set it to 1.")
    if plan.stack.kernels:
        fused = ", ".join(plan.stack.kernels)
        allowed = "what fused kernels put in place of its modules is not written yet"
        yield Problem("stack.kernels", f"found {fused} for {model.family}", allowed, "Leave them out.")
    targets = plan.adapter.targets if plan.adapter is not None else None
    named = targets if isinstance(targets, list | tuple) else ()
    for name in (one for one in named if one.rpartition(".")[2] in TAPS):
        allowed = "adapters of linear layers can be estimated so far, not of a convolution"
        yield Problem("adapter.targets", f"found {name!r} for {model.family}", allowed, "Leave it out.")

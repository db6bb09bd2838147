"""Fused kernels that patch a model in a way that is not known."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.kernel_sets import KERNEL_SETS
from trainledger.model.program import Model
from trainledger.plan.schema import Plan


def kernel_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of kernel sets with the plan's model: of one with experts some patch more before it is built than after.

    Source: liger_kernel/transformers/monkey_patch.py, apply_liger_kernel_to_gemma4_text (0.8.0).
    """
    routed = any(block.top_k for block in model.blocks)
    for name in plan.stack.kernels:
        if routed and name in KERNEL_SETS and model.family in KERNEL_SETS[name].dense:
            need = "of this model with experts it replaces other modules before the model is built than after"
            yield Problem("stack.kernels", f"found {name!r}", need, "Leave it out.")

"""Patterns of what is trained that the ledger cannot tell apart: it walks equal layers once."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.model.counts import fits, storages
from trainledger.model.program import Linear, Model
from trainledger.plan.schema import Plan

WHOLE = ("all", "none")


def trainable_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """A pattern that fits nothing, or whole layers or some of them by number, and no module within a layer."""
    if plan.adapter is not None or plan.trainable in WHOLE:
        return
    patterns = (plan.trainable,) if isinstance(plan.trainable, str) else plan.trainable
    alias = [op.name for op in model.head.ops if isinstance(op.spec, Linear)]
    parts = (model.embeddings, *(block.weights for block in model.blocks), model.head.weights)
    names = [*alias, *(weight.name for weights in parts for weight in weights)]
    every = [name for name, _ in storages(model)]
    for pattern in patterns:
        if any(fits(name, (pattern,)) for name in names):
            continue
        if not any(fits(name, (pattern,)) for name in every):
            yield Problem(
                "trainable", f"{pattern!r} fits no module", "names of modules are needed: q_proj, mlp, lm_head"
            )
        else:
            allowed = "modules within a layer are told apart, layers by their number are not yet: q_proj, mlp, lm_head"
            yield Problem("trainable", f"found {pattern!r}", allowed)

"""What is trained: patterns that the ledger cannot tell apart (it walks equal layers once), and nothing at all where a
backward is written into the schedule."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.ledger.losses import CHUNKED, FUSED
from trainledger.model.counts import fits, storages
from trainledger.model.program import Linear, Model
from trainledger.plan.schema import Plan

WHOLE = ("all", "none")
LOSSES = (FUSED, CHUNKED)  # make the head's gradient within the forward


def trainable_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """A pattern that fits nothing, or whole layers or some of them by number, and no module within a layer; nothing
    that is trained under a pipeline or a loss that makes gradients in its forward."""
    if plan.adapter is not None or plan.trainable in WHOLE:
        if plan.adapter is None and plan.trainable == "none" and (plan.parallel.pp > 1 or plan.stack.loss in LOSSES):
            allowed = "without a pipeline and with a plain loss it can be estimated so far"
            yield Problem("trainable", "found 'none' without an adapter", allowed, "Set it to all, or add an adapter.")
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

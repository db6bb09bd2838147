"""A model as a release of Transformers, and the engine that trains it, run it, where that differs in its operations or
dtypes.

Source: facts.released; deepspeed/runtime/engine.py, _configure_distributed_model, which casts the whole model.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.facts.released import RELEASED
from trainledger.facts.versions import at_least
from trainledger.model.program import Block, GroupRouter, Model, Op, Role, Weight
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.schema import Plan


def as_run(model: Model, plan: Plan) -> Model:
    """The model as the plan's release of Transformers (left out: the newest known) and its engine run it."""
    release, kind = plan.stack.versions.get("transformers"), str(plan.keys().get("model_type"))
    row = RELEASED.get(kind) or RELEASED.get(model.family)
    if row is None:
        return model
    since = row.routed if row.routed and any(block.top_k for block in model.blocks) else row.since
    if not at_least(release, since):
        older = f"its layers are covered from Transformers {since} on"
        blocks = tuple(replace(block, ops=(), unknown=block.unknown or older) for block in model.blocks)
        return replace(model, blocks=blocks)
    low, high = row.low_tables
    if model.rotary and low and at_least(release, low) and not at_least(release, high):
        model = replace(model, rotary=replace(model.rotary, high=False))
    if not row.high_router or (at_least(release, row.high_router) and not deepspeed_of(plan)):
        return model
    return replace(model, blocks=tuple(_low(block) for block in model.blocks))


def _low(block: Block) -> Block:
    """With its router's weight in the model's dtype."""
    routers = {weight for weight in block.weights if weight.role is Role.ROUTER}
    return replace(
        block,
        ops=tuple(_op(op) for op in block.ops),
        weights=tuple(_weight(one) if one in routers else one for one in block.weights),
    )


def _op(op: Op) -> Op:
    return (
        replace(op, spec=replace(op.spec, weight=_weight(op.spec.weight))) if isinstance(op.spec, GroupRouter) else op
    )


def _weight(weight: Weight) -> Weight:
    return replace(weight, dtype=None)

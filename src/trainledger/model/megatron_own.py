"""Megatron-Core's own layers where they differ from those with Transformer Engine's: attention through latents.

The projections down to latents are spread over ranks by their outputs, which are gathered. The part of the keys that
turns stays whole; a latent's part of the sequence is taken behind the gather.
Source: megatron/core/models/gpt/gpt_layer_specs.py, get_gpt_layer_local_spec; transformer/multi_latent_attention.py,
get_query_key_value_tensors (0.14 to 0.19).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.transformer_engine import NAME
from trainledger.model.operations_megatron import Along, Latents, Parallel, Regathered
from trainledger.model.program import Block, Model, Op, Weight
from trainledger.plan.schema import Plan


def own_layers(plan: Plan) -> bool:
    """Whether a plan of Megatron-Core runs none of Transformer Engine's layers."""
    stack = plan.stack
    return NAME not in stack.kernels or stack.options.get("transformer_impl") == "local"


def with_own_latents(model: Model, plan: Plan) -> Model:
    """The model as Megatron-Core's own layers have it."""
    if not own_layers(plan):
        return model
    blocks = tuple(_block(block) for block in model.blocks)
    return replace(model, blocks=blocks, further=tuple(_block(block) for block in model.further))


def _block(block: Block) -> Block:
    read = {name for op in block.ops if isinstance(op.spec, Latents) for name in op.ins}
    if not read:
        return block
    ops = tuple(one for op in block.ops for one in _spread(op, read))
    parts = {op.spec.weight: _part(op.spec.weight) for op in block.ops if isinstance(op.spec, Parallel) and _down(op)}
    return replace(block, ops=ops, weights=tuple(parts.get(one, one) for one in block.weights))


def _down(op: Op) -> bool:
    return isinstance(op.spec, Parallel) and op.spec.along is Along.WHOLE


def _spread(op: Op, read: set[str]) -> Iterator[Op]:
    """A projection down, and what makes its result whole; `read`: what is parted into a latent and turned keys."""
    if not isinstance(op.spec, Parallel) or not _down(op):
        yield op
        return
    part = (Axis(Dim.HIDDEN_PART, op.dims[0].size),)
    yield replace(op, spec=replace(op.spec, along=Along.COLUMN, weight=_part(op.spec.weight)), dims=part)
    yield Op(f"{op.name}.gather", Regathered(bool(read.intersection(op.outs))), op.outs, op.outs, op.dims)


def _part(weight: Weight) -> Weight:
    first, *rest = weight.dims
    return replace(weight, dims=(Axis(Dim.HIDDEN_PART, first.size), *rest))

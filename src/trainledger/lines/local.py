"""One rank's part of a model: every dim that is spread over ranks, divided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainledger.lines.parts import Parts, local
from trainledger.model.mapped import spec_with
from trainledger.model.program import Block, Head, Model, Op, Role, Weight


def local_weight(weight: Weight, parts: Parts) -> Weight:
    """This rank's part of a weight."""
    return replace(weight, dims=local(weight.dims, parts, weight.role is Role.EXPERT))


def local_model(model: Model, parts: Parts) -> Model:
    """The model whose weights and operations are this rank's parts."""
    if parts == Parts():
        return model
    return replace(
        model,
        prologue=_ops(model.prologue, parts),
        embeddings=_weights(model.embeddings, parts),
        blocks=tuple(_block(block, parts) for block in model.blocks),
        head=Head(_ops(model.head.ops, parts), _weights(model.head.weights, parts)),
        further=tuple(_block(block, parts) for block in model.further),
    )


def _block(block: Block, parts: Parts) -> Block:
    return replace(block, ops=_ops(block.ops, parts), weights=_weights(block.weights, parts))


def _weights(weights: Iterable[Weight], parts: Parts) -> tuple[Weight, ...]:
    return tuple(local_weight(one, parts) for one in weights)


def _ops(ops: Iterable[Op], parts: Parts) -> tuple[Op, ...]:
    return tuple(_op(op, parts) for op in ops)


def _op(op: Op, parts: Parts) -> Op:
    expert = bool(getattr(op.spec, "expert", False))
    spec = spec_with(op.spec, lambda weight: local_weight(weight, parts))
    return replace(op, spec=spec, dims=local(op.dims, parts, expert))

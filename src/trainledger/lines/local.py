"""One rank's part of a model: every dim that is spread over ranks, divided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from trainledger.lines.parts import Parts, local
from trainledger.model.program import Block, Head, Model, Op, Role, Spec, Weight


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
    return replace(op, spec=_spec(op.spec, parts), dims=local(op.dims, parts, expert))


def _spec(spec: Spec, parts: Parts) -> Spec:
    """The operation with its weights' local parts."""
    given = {field.name: getattr(spec, field.name) for field in fields(spec)}
    changed = {name: _part(value, parts) for name, value in given.items()}
    made: Spec = replace(spec, **{name: value for name, value in changed.items() if value is not given[name]})  # type: ignore[arg-type]
    return made


def _part(value: object, parts: Parts) -> object:
    if isinstance(value, Weight):
        return local_weight(value, parts)
    if isinstance(value, tuple) and value and all(isinstance(one, Weight) for one in value):
        return tuple(local_weight(one, parts) for one in value)
    return value

"""A decoder with a head of one number for each token: what critics and reward models are."""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim
from trainledger.model.operations_megatron import Along, Parallel
from trainledger.model.program import Linear, Model, Op, Role, Weight

NAME = "score.weight"


def valued(model: Model) -> Model:
    """The model with its head's last linear layer one number wide, in a storage of its own."""
    wide = next((op.spec for op in reversed(model.head.ops) if isinstance(op.spec, Linear | Parallel)), None)
    if wide is None:
        return model
    one = Axis(Dim.VOCAB, 1)
    if isinstance(wide, Parallel):
        return _whole(model, wide, one)
    own = replace(wide.weight, name=NAME, dims=(one, *wide.weight.dims[1:]), tied=False)
    ops = tuple(_narrow(op, wide, own, one) for op in model.head.ops)
    others = tuple(weight for weight in model.head.weights if weight not in (wide.weight, wide.bias))
    return replace(model, head=replace(model.head, ops=ops, weights=(*others, own)), vocab=1)


def _whole(model: Model, wide: Parallel, one: Axis) -> Model:
    """Megatron-Core's decoder, whose last layer then lies on every rank, for its own part of the sequence.

    Source: verl/models/mcore/bridge.py, LinearForLastLayer (0.7.0).
    """
    own = Weight("output_layer.weight", (one, *wide.weight.dims[1:]), Role.HEAD)
    spec = Parallel(Along.WHOLE, own, later=False)
    ops = tuple(replace(op, spec=spec, dims=(one,)) if op.spec is wide else op for op in model.head.ops)
    norms = tuple(weight for weight in model.head.weights if weight.role is not Role.HEAD)
    return replace(model, head=replace(model.head, ops=ops, weights=(*norms, own)), vocab=1)


def _narrow(op: Op, wide: Linear, own: Weight, one: Axis) -> Op:
    if op.spec is wide:
        return replace(op, name=own.name.rpartition(".")[0], spec=replace(wide, weight=own, bias=None), dims=(one,))
    named = any(axis.dim is Dim.VOCAB for axis in op.dims)
    return replace(op, dims=tuple(one if axis.dim is Dim.VOCAB else axis for axis in op.dims)) if named else op

"""torchtitan's one linear layer for queries, keys and values, whose parts are views of its result.

Source: torchtitan/models/common/attention.py, FusedQKVLinear (since 2026-04; the models' default since #3714).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainledger.base.dims import Axis, Dim, elements
from trainledger.model.program import Block, Linear, Op, Split, Weight

VALUES = ("q", "k", "v")
WHOLE = "qkv"


def fused(block: Block) -> Block:
    """The layer with its three projections as one; as it is where it has no such three."""
    apart = {op.outs[0]: op for op in block.ops if isinstance(op.spec, Linear) and op.outs[0] in VALUES}
    if tuple(apart) != VALUES:
        return block
    specs = {name: op.spec for name, op in apart.items() if isinstance(op.spec, Linear)}
    first = apart[VALUES[0]]
    one = _joined([specs[name].weight for name in VALUES], WHOLE)
    biases = [spec.bias for spec in specs.values() if spec.bias is not None]
    bias = _joined(biases, WHOLE) if biases else None
    made = (
        replace(first, spec=replace(specs[VALUES[0]], weight=one, bias=bias), outs=(WHOLE,), dims=one.dims[:1]),
        Op(first.name, Split(tuple(apart[name].dims for name in VALUES)), (WHOLE,), VALUES, one.dims[:1]),
    )
    gone = {weight: None for spec in specs.values() for weight in (spec.weight, spec.bias) if weight is not None}
    stand = {specs[VALUES[0]].weight: one} | ({biases[0]: bias} if bias is not None else {})
    weights = tuple(stand.get(weight, weight) for weight in block.weights if weight in stand or weight not in gone)
    return replace(block, ops=tuple(_ops(block, tuple(apart.values()), made)), weights=weights)


def _ops(block: Block, apart: tuple[Op, ...], made: tuple[Op, ...]) -> Iterator[Op]:
    """The operations with `made` where the first of those apart stood; the whole ends with its parts."""
    for op in block.ops:
        if op is apart[0]:
            yield from made
        elif op not in apart:
            yield replace(op, drop=(WHOLE, *op.drop)) if VALUES[0] in op.drop else op


def _joined(weights: list[Weight], name: str) -> Weight:
    """One weight of the rows of all; all read the same."""
    first = weights[0]
    sizes = [elements(weight.dims) for weight in weights]
    inner = first.dims[-1:] if len(first.dims) > len(("heads", "width")) else ()
    rows = sum(sizes) // elements(inner)
    prefix, _, last = first.name.rpartition(".")
    module = prefix.rpartition(".")[0]
    return replace(first, name=f"{module}.w{name}.{last}", dims=(Axis(Dim.HEAD_DIM, rows), *inner))

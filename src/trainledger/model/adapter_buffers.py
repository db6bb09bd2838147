"""What PEFT's methods keep on the device besides parameters.

Sources: peft/tuners/{vera,adalora,oft}/{layer,model}.py (0.21.2).
"""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import INT64, DType
from trainledger.facts.peft_methods import IMPORTANCE
from trainledger.model.operations import sides
from trainledger.model.program import Buffer, Delta, Linear, Model

FACTORS = ("A", "E", "B")  # AdaLoRA's
SIDES = ("rows", "cols")  # of entries of OFT's blocks


def frozen_pair(model: Model, rank: int, dtype: DType) -> Iterator[Buffer]:
    """VeRA's: one pair of matrices for all layers, as wide as the widest."""
    specs = (op.spec for block in model.blocks for op in block.ops)
    changed = [spec for spec in specs if isinstance(spec, Linear) and isinstance(spec.adapter, Delta)]
    if changed:
        inners, outers = zip(*map(sides, changed), strict=True)
        inner, outer = (max(axes, key=lambda axis: axis.size) for axes in (inners, outers))
        yield Buffer("vera_A", (Axis(Dim.RANK, rank), inner), dtype)
        yield Buffer("vera_B", (outer, Axis(Dim.RANK, rank)), dtype)


def scores(model: Model) -> Iterator[Buffer]:
    """AdaLoRA's of every factor."""
    for place, delta in _deltas(model):
        for one in delta.weights[: len(FACTORS)]:
            yield from (Buffer(f"{name} of {place}.{one.name}", one.dims) for name in IMPORTANCE.tensors)


def places(model: Model) -> Iterator[Buffer]:
    """OFT's rows and columns of the entries of a block."""
    for place, delta in _deltas(model):
        for one in delta.weights:
            at = f"{place}.{one.name.removesuffix('.weight')}"
            yield from (Buffer(f"{at}.{name}", one.dims[1:], INT64) for name in SIDES)


def _deltas(model: Model) -> Iterator[tuple[str, Delta]]:
    """What is added to each adapted layer, with the path of what the layer is in."""
    for block in model.blocks:
        for op in block.ops:
            if isinstance(op.spec, Linear) and isinstance(op.spec.adapter, Delta):
                for layer in block.layers:
                    yield f"{block.name}.{layer}", op.spec.adapter

"""Linear layers whose factors are cast to 8 or 4 bits, as torchao runs them on a tape: scaled by tensor, by rows, in
blocks.

In eager mode a cast makes absolute values, then two fp32 copies; compiled code makes them in its kernels. A layer keeps
its input as it came and the cast weight, or the weight itself where that is remade, or where scales go by rows; one of
4 bits keeps both casts.
Sources: torchao/float8/{float8_linear,float8_tensor,float8_scaling_utils}.py, matmul_with_hp_or_float8_args (0.8 to
0.13; scales by rows: pytorch issue #141881); prototype/float8nocompile; prototype/mx_formats/mx_linear.py.
"""

from __future__ import annotations

from typing import NamedTuple

from trainledger.base.dims import Dims
from trainledger.facts.dtypes import FP32, DType
from trainledger.ledger import aten
from trainledger.ledger.tape import EXTERNAL, SCALED, UNLISTED, Code, Prim, Step, Tape
from trainledger.model.operations import Low, Scales

CAST = "scaled cast"


class Layer(NamedTuple):
    """A call: its input, its weight, its result's dims, how it casts, and whether its layer is compiled."""

    x: int
    weight: int
    dims: Dims
    low: Low
    compiled: bool


def linear(t: Tape, call: Layer) -> int:
    """The layer's result, in its input's dtype."""
    x, weight, low = call.x, call.weight, call.low
    lowered = None if low.gathered else _cast(t, call, weight, "weight in 8 bits")
    came = t.store[x] != EXTERNAL and t.storages[t.store[x]].dtype == low.dtype
    narrow = x if came else _cast(t, call, x, "input in 8 bits")
    grad = t.grad[x] or t.grad[weight]
    out = t.fresh(call.dims, t.dtype[x], grad, "output")
    kept = narrow if low.early or low.summed else x
    held = weight if lowered is None or low.again else lowered
    saves = ((kept,) if t.grad[weight] else ()) + ((held,) if t.grad[x] else ())
    steps = _backward(t, call, remade=not low.gathered and low.again)
    kind = SCALED if low.listed else UNLISTED
    casts = [*(() if came else (narrow,)), *(() if lowered is None else (lowered,))]
    t.run(Prim(kind, (x, weight, *casts), (out,), saves, steps, ()))
    t.end(casts)
    return out


def cast(t: Tape, x: int, low: Low, compiled: bool) -> int:
    """An input in 8 bits, before ranks gather it."""
    return _cast(t, Layer(x, x, t.dims[x], low, compiled), x, "input in 8 bits")


def _cast(t: Tape, call: Layer, value: int, name: str) -> int:
    """A factor in 8 bits; what eager mode makes on the way."""
    out = t.fresh(t.dims[value], call.low.dtype, False, name)
    if call.compiled or call.low.early or call.low.kernels:
        return t.run(Prim(CAST, (value,), (out,), (), (), ()))
    absolute = t.fresh(t.dims[value], t.dtype[value], False, f"absolute values of the {name.partition(' ')[0]}")
    t.run(Prim("abs", (value,), (absolute,), (), (), ()))
    t.end([absolute])
    return t.run(Prim(CAST, (value,), (out,), (), (), _wide(t, t.dims[value])))


def _wide(t: Tape, dims: Dims) -> tuple[int, ...]:
    """The fp32 copy of a tensor, and that copy times its scale."""
    return tuple(aten.temporary(t, dims, FP32, f"8-bit cast: {name}") for name in ("fp32", "scaled"))


def _backward(t: Tape, call: Layer, remade: bool) -> tuple[Step, ...]:
    """The input's gradient, of cast gradients and the cast weight; then the weight's, of both casts anew."""
    low = call.low

    def born(dims: Dims, name: str) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        return _temporary(t, call, dims, low.dtype, f"{name} in 8 bits")

    slope, slope_ends = born(call.dims, "gradient") if not low.summed else ((), ())
    weight, weight_ends = born(t.dims[call.weight], "weight") if remade else ((), ())
    narrow, narrow_ends = born(t.dims[call.x], "input") if not low.early else ((), ())
    turned, turned_ends = born(call.dims, "gradient, by columns")
    if low.scales is Scales.ROWS_BUT_WEIGHTS:  # the weight's gradient is a product of 16 bits
        turned, turned_ends, narrow, narrow_ends = (), (), (), ()
    return (
        *slope, *weight, Step(Code.GRAD, 0), *weight_ends, *slope_ends,
        *turned, *narrow, Step(Code.GRAD, 1), *turned_ends, *narrow_ends,
    )  # fmt: skip


def _temporary(t: Tape, call: Layer, dims: Dims, dtype: DType, name: str) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Births of a cast with what eager mode makes on the way, and its death."""
    made = aten.temporary(t, dims, dtype, name)
    first: list[Step] = []
    if not (call.compiled or call.low.early or call.low.kernels):
        for one in _wide(t, dims):
            first.append(Step(Code.BORN, 0, one))
    deaths = [Step(Code.DEAD, 0, step.value) for step in first]
    return (*first, Step(Code.BORN, 0, made), *deaths), (Step(Code.DEAD, 0, made),)

"""LitGPT's own modules on a tape: its RMSNorm, and LoRA of the fused layer of queries, keys and values.

Sources: litgpt/model.py, RMSNorm; litgpt/lora.py, LoRAQKVLinear (2023-10 to 0.5.13). The products with `up` are grouped
convolutions of width one; cuDNN lays the gradient out channel by channel first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.ledger import aten, nn
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.operations import NormKind
from trainledger.model.weights import FusedLowRank

NORMS = (NormKind.RMS_SQUARES, NormKind.RMS_SQUARES_ONE_PLUS)


def norm(t: Tape, kind: NormKind, x: int, weight: int) -> int:
    """x in fp32, over the root of the mean of x times x, times the weight in fp32, cast back."""
    high = aten.to(t, x, FP32)
    mean = aten.mean(t, aten.mul(t, high, high, "square"))
    normal = aten.mul(t, high, aten.rsqrt(t, aten.shift(t, mean)), "normalised")
    own = aten.shift(t, weight) if kind is NormKind.RMS_SQUARES_ONE_PLUS else weight
    out = aten.to(t, aten.mul(t, normal, aten.to(t, own, FP32)), t.dtype[x])
    t.end([high, mean, normal, own])
    return out


class Call(NamedTuple):
    """One call of a fused layer: its input, its result's dims, its adapter with the values of its parameters, and the
    chance of dropout."""

    x: int
    dims: Dims
    adapter: FusedLowRank
    down: int
    up: int
    dropout: float


def fused(t: Tape, base: Callable[[int], int], call: Call) -> int:
    """base(x) + scale * pad(up(down(dropout(x))))."""
    own = base(call.x)
    tokens, widths = t.dims[call.x][:-1], call.adapter.widths
    dropped = aten.dropout(t, call.x, call.dropout)
    narrow = nn.linear(t, dropped, (*tokens, t.dims[call.down][0]), call.down)
    t.end([dropped] if dropped != call.x else [])
    made = _by_group(t, narrow, call, tokens)
    wide = _padded(t, made, call.dims) if call.adapter.padded else aten.view(t, made, call.dims)
    scaled = aten.scale(t, wide)
    t.end([narrow, made] if len(widths) > 1 else [made])
    out = aten.add(t, own, scaled)
    t.end([own, scaled])
    return out


def _by_group(t: Tape, narrow: int, call: Call, tokens: Dims) -> int:
    """Each adapted part of the product with `up`: one grouped convolution where all are as wide, else one each and a
    concatenation."""
    widths = call.adapter.widths
    if len(set(widths)) == 1:
        return _convolution(t, narrow, call.up, (*tokens, Axis(Dim.ROWS, sum(widths))))
    rank = Axis(Dim.RANK, t.dims[call.up][1].size)
    parts = aten.chunk(t, narrow, [(*tokens, rank) for _ in widths])
    rows = aten.chunk(t, call.up, [(Axis(Dim.ROWS, width), rank) for width in widths])
    made = [
        _convolution(t, part, row, (*tokens, Axis(Dim.ROWS, width)))
        for part, row, width in zip(parts, rows, widths, strict=True)
    ]
    return aten.cat(t, made, (*tokens, Axis(Dim.ROWS, sum(widths))))


def _convolution(t: Tape, x: int, weight: int, dims: Dims) -> int:
    """A convolution of width one: saves its input and its weight."""
    gx, gw = t.grad[x], t.grad[weight]
    out = t.fresh(dims, t.dtype[x], gx or gw, "convolution")
    laid = aten.temporary(t, dims, t.dtype[x], "gradient by channel")
    saves = ((x,) if gw else ()) + ((weight,) if gx else ())
    steps = (Step(Code.BORN, 0, laid), Step(Code.GRAD, 0), Step(Code.GRAD, 1), Step(Code.DEAD, 0, laid))
    return t.run(Prim("convolution", (x, weight), (out,), saves, steps, ()))


def _padded(t: Tape, x: int, dims: Dims) -> int:
    """Zeros of the whole width with the adapted columns copied in: index_copy_ saves what it copies."""
    out = t.fresh(dims, t.dtype[x], t.grad[x], "padded with zeros")
    return t.run(Prim("index_copy_", (x,), (out,), (x,) if t.grad[x] else (), (Step(Code.GRAD, 0),), ()))

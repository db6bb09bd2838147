"""Linear layers with PEFT's other adapters on a tape.

Sources: peft/tuners/{adalora,ia3,vera,loha,lokr,oft,boft,fourierft}/layer.py (0.21.2).
Small tensors inside a block of an orthogonal matrix are counted as one operation each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import COMPLEX64, FP32, INT64
from trainledger.ledger import aten, nn
from trainledger.ledger.tape import Code, Prim, Step, Tape


class Call(NamedTuple):
    """One call: the input, dims of tokens and of the layer's result for each, its outputs and inputs as one dimension,
    the method's parameters, the base's bias, the dropout's chance, whether the input is scaled (IA3), and how many
    parameters make each factor (LoKr)."""

    x: int
    tokens: Dims
    tail: Dims
    outer: Axis
    inner: Axis
    values: tuple[int, ...]
    bias: int | None
    dropout: float
    inside: bool
    parts: tuple[int, ...]

    @property
    def matrix(self) -> Dims:
        """Dims of the layer's weight."""
        return (self.outer, self.inner)

    @property
    def flat(self) -> Dims:
        """Dims of its result."""
        return (*self.tokens, self.outer)


PAIR = Axis(Dim.SLOTS, len(("row", "column")))  # of an entry's place
CAYLEY = ("solution", "factors", "left side")  # of the equation that makes blocks orthogonal
Base = Callable[[int], int]  # the layer's own result for an input


def linear(t: Tape, kind: str, base: Base, call: Call) -> int:
    """The layer's result under a method, in the dtype of its own."""
    return aten.view(t, _RULES[kind](t, base, call), (*call.tokens, *call.tail))


def _own(t: Tape, base: Base, call: Call, x: int) -> int:
    return aten.view(t, base(x), call.flat)


def _summed(t: Tape, own: int, made: int, *names: int) -> int:
    """own + made, in the wider dtype and cast back."""
    out = aten.to(t, aten.add(t, own, made), t.dtype[own])
    t.end(names)
    return out


def _high(t: Tape, call: Call) -> int:
    return aten.to(t, call.x, t.dtype[call.values[0]])


def _adalora(t: Tape, base: Base, call: Call) -> int:
    """own += (dropout(x) (A E)^T B^T) scale / (ranks + eps)."""
    down, diagonal, up, count = call.values
    own = _own(t, base, call, call.x)
    ranks = aten.shift(t, count)
    dropped = aten.dropout(t, _high(t, call), call.dropout)
    factor = aten.mul(t, down, diagonal, "A E")
    low = nn.linear(t, dropped, (*call.tokens, t.dims[down][0]), factor)
    scaled = aten.scale(t, nn.linear(t, low, call.flat, up))
    return aten.add_into(t, own, aten.mul(t, scaled, ranks, "over ranks"))


def _ia3(t: Tape, base: Base, call: Call) -> int:
    """base(x * l), or base(x) * l."""
    vector = aten.scale(t, aten.view(t, call.values[0], (call.inner,) if call.inside else (call.outer,)))
    if call.inside:
        high = aten.view(t, _high(t, call), (*call.tokens, call.inner))
        scaled = aten.to(t, aten.mul(t, high, vector), t.dtype[call.x])
        out = _own(t, base, call, scaled)
        t.end([high, vector, scaled])
        return out
    own = _own(t, base, call, call.x)
    out = aten.to(t, aten.mul(t, own, vector), t.dtype[own])
    t.end([vector])
    return out


def _vera(t: Tape, base: Base, call: Call) -> int:
    """own + b * (d * x A^T) B^T, with A and B frozen, one pair for the whole model."""
    wide, narrow = call.values
    rank = t.dims[narrow][0]
    own = _own(t, base, call, call.x)
    high = _high(t, call)
    down, up = (t.outside(dims, t.dtype[wide], False) for dims in ((rank, call.inner), (call.outer, rank)))
    low = nn.linear(t, aten.dropout(t, high, call.dropout), (*call.tokens, rank), down)
    high_again = nn.linear(t, aten.mul(t, narrow, low), call.flat, up)
    return _summed(t, own, aten.mul(t, wide, high_again), high)


def _loha(t: Tape, base: Base, call: Call) -> int:
    """own + x (A1 B1 * A2 B2)^T: one function makes the matrix and saves its factors alone. Under autocast its forward
    reads them cast, its backward as they are."""
    own, kind = _own(t, base, call, call.x), t.dtype[call.values[0]]
    low, *_ = [t.dtype[nn.lowered(t, one)] for one in call.values]
    pair = [aten.plain(t, "product of two factors", call.matrix, low) for _ in ("first", "second")]
    product = aten.plain(t, "product of both", call.matrix, low, tuple(pair))
    t.end(pair)
    g = aten.temporary(t, call.matrix, low, "gradient, scaled")
    again = ("second product, again", "gradient of the first product")
    m, one = (aten.temporary(t, call.matrix, kind, name) for name in again)
    n, two = (aten.temporary(t, call.matrix, kind, f"{name}, of the second") for name in ("product", "gradient"))
    steps = (
        *(Step(Code.BORN, 0, value) for value in (g, m, one)), Step(Code.DEAD, 0, m), Step(Code.GRAD, 0),
        Step(Code.GRAD, 1), Step(Code.BORN, 0, n), Step(Code.BORN, 0, two), Step(Code.DEAD, 0, one),
        Step(Code.DEAD, 0, n), Step(Code.GRAD, len(call.values[:2])), Step(Code.GRAD, len(call.values[:3])),
        Step(Code.DEAD, 0, g), Step(Code.DEAD, 0, two),
    )  # fmt: skip
    delta = t.fresh(call.matrix, low, True, "whole matrix")
    t.run(Prim("hadamard", (*call.values, product), (delta,), call.values, steps, ()))
    return _by_matrix(t, own, call, delta)


def _by_matrix(t: Tape, own: int, call: Call, delta: int) -> int:
    """own + x W^T with a whole matrix made for this call, which is kept."""
    cast = aten.to(t, call.x, t.dtype[delta])
    return _summed(t, own, nn.linear(t, cast, call.flat, delta), cast, delta)


def _lokr(t: Tape, base: Base, call: Call) -> int:
    """own + x (W1 kron W2)^T; each of both is a matrix or a product of two."""
    own = _own(t, base, call, call.x)
    few, many = _factors(t, call)
    (a, b), (c, d) = t.dims[few], t.dims[many]
    one = Axis(Dim.ONE, 1)
    kron = aten.mul(t, aten.view(t, few, (a, one, b, one)), aten.view(t, many, (one, c, one, d)), "kron")
    t.end([few, many])
    return _by_matrix(t, own, call, aten.scale(t, aten.view(t, kron, call.matrix), "whole matrix"))


def _factors(t: Tape, call: Call) -> tuple[int, int]:
    """The small and the large matrix."""
    few, _ = call.parts
    first, second = (_product(t, part) for part in (call.values[:few], call.values[few:]))
    return first, second


def _product(t: Tape, values: tuple[int, ...]) -> int:
    """A matrix, or the product of two."""
    if len(values) == 1:
        return values[0]
    first, second = values
    dims = (t.dims[first][0], t.dims[second][1])
    return aten.matmul(t, nn.lowered(t, first), nn.lowered(t, second), dims, "product of two factors")


def _fourierft(t: Tape, base: Base, call: Call) -> int:
    """own + x F^T, F the real part of the inverse transform of a sparse spectrum."""
    own = _own(t, base, call, call.x)
    (spectrum,) = call.values
    dense = aten.plain(t, "dense spectrum", call.matrix, FP32)
    places = aten.plain(t, "places of frequencies", (PAIR, *t.dims[spectrum]), INT64)  # copied from the host each time
    wide = aten.plain(t, "spectrum as complex numbers", call.matrix, COMPLEX64, (dense,))
    first, second = (aten.temporary(t, call.matrix, COMPLEX64, f"{name} gradient") for name in ("spread", "complex"))
    steps = (
        Step(Code.BORN, 0, first), Step(Code.BORN, 0, second), Step(Code.DEAD, 0, first), Step(Code.GRAD, 0),
        Step(Code.DEAD, 0, second),
    )  # fmt: skip
    real = t.fresh(call.matrix, COMPLEX64, True, "transform")
    t.run(Prim("ifft2", (spectrum, places, wide), (real,), (places,), steps, ()))
    t.dtype[real] = FP32  # its real part, a view
    whole = aten.scale(t, real, "whole matrix")
    delta = aten.to(t, whole, t.dtype[spectrum])
    t.end([dense, places, whole])
    return _by_matrix(t, own, call, delta)


def _oft(t: Tape, base: Base, call: Call) -> int:
    """base(x R): R is block-diagonal, a sum of powers of a skew matrix."""
    (parameters,) = call.values
    blocks, entries = t.dims[parameters]
    size, kind = _side(entries.size), t.dtype[parameters]
    block = (Axis(Dim.BLOCKS, blocks.size), Axis(Dim.ROWS, size), Axis(Dim.COLUMNS, size))

    def times(a: int, b: int, dims: Dims, name: str) -> int:
        return aten.matmul(t, nn.lowered(t, a), nn.lowered(t, b), dims, name)

    high = _high(t, call)
    skew = t.run(Prim("skew", (parameters,), (t.fresh(block, kind, True, "skew matrices"),), (), aten.GRAD0, ()))
    square = times(skew, skew, block, "square")
    cube = times(square, skew, block, "cube")
    fourth = times(cube, skew, block, "fourth power")
    powers = (skew, square, cube, fourth)
    rotation = t.fresh(block, kind, True, "rotations")
    t.run(Prim("sum of powers", powers, (rotation,), (), tuple(Step(Code.GRAD, at) for at in range(len(powers))), ()))
    wide = (*call.tokens, call.inner)
    rotated = aten.to(t, aten.copy(t, times(high, rotation, wide, "rotated input")), t.dtype[high])
    low = aten.to(t, rotated, t.dtype[call.x])
    out = _own(t, base, call, low)
    t.end([high, skew, square, cube, rotated, low])
    return out


def _side(entries: int) -> int:
    """The side of a square whose half above the diagonal has that many entries."""
    side = 1
    while entries > 0:
        entries -= side
        side += 1
    return side


def _boft(t: Tape, base: Base, call: Call) -> int:
    """base(x R) * s: R is a product of whole i x i matrices, made and kept for each layer."""
    blocks, scales = call.values
    low, square = t.dtype[call.x], (call.inner, call.inner)
    identity = aten.plain(t, "identity matrix", square, low)
    ones = aten.plain(t, "ones", (call.outer,), low)
    kept = tuple(t.fresh(t.dims[blocks], FP32, at == 0, name) for at, name in enumerate(CAYLEY))
    pieces = t.run(Prim("cayley", (blocks,), kept, kept, aten.GRAD0, ()))
    diagonal = t.fresh(square, FP32, True, "block-diagonal matrix")
    t.run(Prim("block_diag", (pieces,), (diagonal,), (), aten.GRAD0, ()))
    order = aten.plain(t, "permutation matrix", square, low)
    narrow = aten.to(t, diagonal, low)
    t.end([diagonal])
    turned = aten.matmul(t, narrow, order, square, "permuted once")
    butterfly = aten.matmul(t, order, turned, square, "permuted twice")
    t.end([turned])
    rotation = aten.matmul(t, butterfly, identity, square, "rotation")
    factor = aten.mul(t, aten.view(t, scales, (call.outer,)), ones, "scales")
    rotated = aten.matmul(t, call.x, rotation, (*call.tokens, call.inner), "rotated input")
    own = _own(t, base, call, rotated)
    if call.bias is not None:
        own = aten.sub(t, own, aten.view(t, call.bias, (call.outer,)))
    out = aten.mul(t, own, factor)
    if call.bias is not None:
        out = aten.add(t, out, aten.view(t, call.bias, (call.outer,)))
    result = aten.to(t, out, low)
    t.end([identity, ones, pieces, narrow, order, butterfly, rotation, factor, rotated, out])
    return result


_RULES: dict[str, Callable[[Tape, Base, Call], int]] = {
    "adalora": _adalora, "ia3": _ia3, "vera": _vera, "loha": _loha, "lokr": _lokr, "oft": _oft, "boft": _boft,
    "fourierft": _fourierft,
}  # fmt: skip

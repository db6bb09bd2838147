"""A linear layer or an embedding with a low-rank adapter on a tape, as PEFT's layers run it.

Sources: peft/tuners/lora/layer.py (Linear, Embedding; 0.4.0 to 0.21.2): the input is cast to the adapter's dtype and
keeps that name until the layer returns; from 0.9 on the sum is made out of place in the wider dtype and cast back.
peft/tuners/lora/{dora,variants}.py (0.12.0 to 0.21.2): DoRA makes the whole adapted weight for its norms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import DType
from trainledger.facts.peft import Cast, lora_layer, reuses_product
from trainledger.ledger import aten, nn, quantised
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Packing


class Low(NamedTuple):
    """Values of an adapter's parameters."""

    down: int
    up: int
    bias: int | None
    magnitude: int | None


class Call(NamedTuple):
    """One call of an adapted layer: its input, the dims of tokens and of what it makes of each, the adapter, the chance
    of dropout, the kind of layer, PEFT's release, the layer's own weight and bias, and how it is packed. `flat`: it
    reads a matrix of tokens; `idle`: a dropout stands before it that drops nothing."""

    x: int
    tokens: Dims
    tail: Dims
    low: Low
    dropout: float
    kind: str
    release: str
    weight: int
    bias: int | None = None
    packing: Packing | None = None
    flat: bool = False
    idle: bool = False


def linear(t: Tape, base: Callable[[int], int], call: Call) -> int:
    """base(x) + scale * up(down(dropout(x))), in the dtype of the layer's own result."""
    row = lora_layer(call.kind, call.release)
    own = base(call.x)
    own = aten.copy(t, own) if row.copies else own
    casts = row.casts_in_autocast or t.autocast is None
    high = aten.to(t, call.x, t.dtype[call.low.down]) if casts else call.x
    dropped = aten.dropout(t, high, call.dropout)
    if call.low.magnitude is not None:
        made, out = high, _dora(t, own, dropped, call, call.low.magnitude)
    else:
        made = _scaled(t, low_rank(t, dropped, call), t.dtype[own], row.cast if casts else Cast.NEVER)
        out = aten.add_into(t, own, made) if row.in_place else aten.add(t, own, made)
    if casts and (row.cast is Cast.AFTER_SUM or call.low.magnitude is not None):
        out = aten.to(t, out, t.dtype[own])
    t.end([high, made] if row.names else [high])  # the layer returns
    return out


def _scaled(t: Tape, product: int, own: DType, cast: Cast) -> int:
    """The product times a number, in the layer's own dtype where it is cast before the sum."""
    if cast is Cast.BEFORE_SCALE:
        return aten.scale(t, aten.to(t, product, own))
    made = aten.scale(t, product)
    return aten.to(t, made, own) if cast is Cast.AFTER_SCALE else made


def low_rank(t: Tape, x: int, call: Call) -> int:
    """up(down(x)); what a layer is handed lives until it returns, though autocast has cast it by then."""
    low = call.low
    product = nn.flat_linear if call.flat else nn.linear
    narrow = product(t, x, _narrow(t, call), low.down)
    t.end([x])
    return product(t, narrow, (*call.tokens, *call.tail), low.up, low.bias)


def embedding(t: Tape, base: int, call: Call) -> int:
    """Rows of the table `base`, plus rows of down's transpose times up's."""
    down = call.low.down
    turned = aten.view(t, down, tuple(reversed(t.dims[down])))
    after = nn.embedding(t, call.x, turned, _narrow(t, call))
    made = aten.scale(t, nn.linear(t, after, t.dims[base], call.low.up))
    return aten.to(t, aten.add(t, base, made), t.dtype[base])


def _narrow(t: Tape, call: Call) -> Dims:
    return (*call.tokens, Axis(Dim.RANK, t.dims[call.low.down][0].size))


def _dora(t: Tape, own: int, x: int, call: Call, magnitude: int) -> int:
    """base(x) + (m / |W + s B A| - 1) base(x) + m / |W + s B A| * s * up(down(x)), in the wider dtype.

    With a dropout, if only an idle one, and in older releases always, base(x) is computed once more from the weight's
    cast copy.
    """
    outer = t.dims[call.low.up][:1]
    flat = call._replace(tail=outer)
    norms, names = _norms(t, x, call)
    ratio = _ratio(t, magnitude, norms)
    low = low_rank(t, x, flat)
    product = base = aten.view(t, own, (*call.tokens, *outer))
    if call.dropout > 0 or call.idle or not reuses_product(call.release):
        product = nn.linear(t, x, t.dims[base], names[-1])
    elif call.bias is not None:
        product = aten.sub(t, base, aten.view(t, call.bias, outer))
    less = aten.shift(t, ratio)
    made = aten.add(t, aten.mul(t, less, product), aten.scale(t, aten.mul(t, ratio, low)))
    t.end([*names, norms, ratio, low, product])
    out = aten.add(t, base, made)
    t.end([own, base])
    return aten.view(t, out, t.dims[own])


def _norms(t: Tape, x: int, call: Call) -> tuple[int, list[int]]:
    """The norm of every output's row of W + s B A, which no gradient passes; and what lives by name until DoRA's own
    function returns: the product of both factors with an identity matrix, and the weight's cast copy, the last."""
    low, dtype = call.low, t.dtype[x]
    inner, rank, outer = t.dims[low.down][1], t.dims[low.down][0], t.dims[low.up][0]
    identity = aten.plain(t, "identity matrix", (inner, Axis(Dim.ROWS, inner.size)), t.dtype[low.down])
    down = nn.lowered(t, low.down)
    low_identity = nn.lowered(t, identity)
    narrow = aten.plain(t, "down(identity)", (inner, rank), t.dtype[low_identity], (low_identity, down))
    up = nn.lowered(t, low.up)
    wide = aten.plain(t, "up(down(identity))", (inner, outer), t.dtype[narrow], (narrow, up))
    t.end([identity])  # a name of the function that made the product
    product = aten.to(t, wide, dtype)
    own = call.weight
    if call.packing is not None:
        own = quantised.weight_of(t, quantised.Base(x, (), call.weight, None, call.packing))
    weight = aten.to(t, own, dtype)
    scaled = aten.plain(t, "scaled product", (outer, inner), dtype, (product,))
    whole = aten.plain(t, "adapted weight", (outer, inner), dtype, (weight, scaled))
    norms = aten.plain(t, "norms of outputs", (outer,), dtype, (whole,))
    return norms, [low_identity, narrow, product, weight]


def _ratio(t: Tape, magnitude: int, norms: int) -> int:
    """m / |W|: saves the divisor."""
    out = t.fresh(t.dims[norms], t.dtype[norms], t.grad[magnitude], "magnitude over norm")
    saves = (norms,) if t.grad[magnitude] else ()
    return t.run(Prim("div", (magnitude, norms), (out,), saves, (Step(Code.GRAD, 0),), ()))

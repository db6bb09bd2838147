"""Quantised, adapted projections of attention in one function: Unsloth's kernels as fms-acceleration runs them.

One function makes queries, keys and values of one input, another the output projection. It saves its input and what
dropout made of it for each projection, but no mask and no result of a down projection; backward tells dropped entries
by their zeros. Adapters are cast by hand, which autocast's cache does not see; gradients come in the low dtype.

Sources: fms_acceleration_foak/fused_ops/unsloth_lora/{bnb,gptq}/fast_lora.py, utils.py; models/utils.py (0.7.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL, FP32, DType
from trainledger.facts.kernel_sets import FUSED_LORA, KERNEL_SETS
from trainledger.facts.quantization import BNB_4
from trainledger.ledger import aten, quantised
from trainledger.ledger.software import FOAK, Software
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Linear, LowRank, Op

if TYPE_CHECKING:
    from trainledger.ledger.frame import Frame

Groups = dict[str, tuple[Op, ...]]


class Side(NamedTuple):
    """One projection: its base layer, its adapter's weights, the dims of its low-rank product, its dropout's result."""

    base: quantised.Base
    down: int
    up: int
    narrow: Dims
    dropped: int


def groups(software: Software, ops: Sequence[Op]) -> Groups:
    """The operations that run in one function, by the name of each; nothing where the kernels do not apply."""
    if FOAK not in software.kernels or software.family not in KERNEL_SETS[FOAK].families:
        return {}
    named = {op.name.rpartition(".")[-1]: op for op in ops if isinstance(op.spec, Linear)}
    found: Groups = {}
    for names in FUSED_LORA.groups:
        made = tuple(named[name] for name in names if name in named and _fits(named[name]))
        if len(made) == len(names):
            found |= {op.name: made for op in made}
    return found


def _fits(op: Op) -> bool:
    spec = op.spec
    if not isinstance(spec, Linear) or not isinstance(spec.adapter, LowRank) or spec.weight.packed is None:
        return False
    return spec.adapter.magnitude is None and spec.weight.packed.kind.name in FUSED_LORA.kinds


def run(f: Frame, ops: tuple[Op, ...], x: int) -> dict[str, int]:
    """The results of all projections, by the names of their operations."""
    t, joined = f.tape, len(ops) > 1
    bnb = all(_bnb(op) for op in ops)
    # the three weights of GPTQ are made first, and keep their names until the function returns
    weights = [] if bnb or not joined else [_weight(t, _base(f, op, x)) for op in ops]
    sides: list[Side] = []
    made: list[int] = []
    for at, op in enumerate(ops):
        t.scope = op.name
        side, out = _forward(f, op, x, weights[at] if weights else None)
        sides.append(side)
        made.append(out)
    dropped = [side.dropped for side in sides]
    ins = (x, *(value for side in sides for value in (side.down, side.up)))
    grad = any(t.grad[value] for value in ins)
    outs = [t.alias(out) for out in made]
    for out in outs:
        t.grad[out] = grad
    steps = _backward(t, x, sides, joined and bnb) if grad else ()
    saves = tuple(dict.fromkeys((x, *dropped))) if grad else ()
    t.run(Prim("fused lora", ins, tuple(outs), saves, steps, ()))
    t.end([*weights, *dropped, *made])  # the function returns
    return {op.name: out for op, out in zip(ops, outs, strict=True)}


def _bnb(op: Op) -> bool:
    packed = _linear(op).weight.packed
    return packed is not None and packed.kind.package == BNB_4.package


def _linear(op: Op) -> Linear:
    assert isinstance(op.spec, Linear)
    return op.spec


def _base(f: Frame, op: Op, x: int) -> quantised.Base:
    spec = _linear(op)
    assert spec.weight.packed is not None
    dims = (*f.tape.dims[x][: len(f.dims(()))], *op.dims)
    return quantised.Base(x, dims, f.need(spec.weight), f.param(spec.bias), spec.weight.packed)


def _weight(t: Tape, base: quantised.Base) -> int:
    """The whole weight, dequantised."""
    out = t.fresh(t.dims[base.weight], base.packing.compute, False, "dequantised weight")
    return t.run(Prim("dequantize", (), (out,), (), (), quantised.scales(t, base)))


def _cast(t: Tape, value: int, low: DType) -> int:
    return value if t.dtype[value] == low else aten.plain(t, "cast by hand", t.dims[value], low, (value,))


def _forward(f: Frame, op: Op, x: int, weight: int | None) -> tuple[Side, int]:
    """out = x W; out += (dropout(x) A) (s B)."""
    t, base, adapter = f.tape, _base(f, op, x), _linear(op).adapter
    assert isinstance(adapter, LowRank)
    low = t.dtype[x]
    weight = _weight(t, base) if weight is None else weight
    out = aten.plain(t, "linear", base.dims, low, (x, weight))
    dropped = x
    if adapter.dropout and f.setting.training:
        dropped, mask = t.fresh(t.dims[x], low, False, "dropout"), t.fresh(t.dims[x], BOOL, False, "dropout mask")
        t.run(Prim("native_dropout", (x,), (mask, dropped), (), (), ()))
    down, up = f.need(adapter.down), f.need(adapter.up)
    narrow = (*base.dims[: len(f.dims(()))], Axis(Dim.RANK, t.dims[down][0].size))
    inner = aten.plain(t, "linear", narrow, low, (dropped, _cast(t, down, low)))
    scaled = aten.plain(t, "scaled", t.dims[up], low, (_cast(t, up, low),))
    product = aten.plain(t, "linear", base.dims, low, (inner, scaled))
    t.run(Prim("add_", (out, product), (t.alias(out),), (), (), ()))
    return Side(base, down, up, narrow, dropped), out


class _Steps:
    """Steps of the function's backward as they are put together."""

    def __init__(self, t: Tape) -> None:
        self.t = t
        self.steps: list[Step] = []

    def born(self, dims: Dims, dtype: DType, name: str) -> int:
        """A temporary is born; returns its storage."""
        made = aten.temporary(self.t, dims, dtype, name)
        self.steps.append(Step(Code.BORN, 0, made))
        return made

    def dead(self, *made: int) -> None:
        """Temporaries die."""
        self.steps += [Step(Code.DEAD, 0, one) for one in made]

    def cast(self, value: int, low: DType) -> tuple[int, ...]:
        """A weight of an adapter in the low dtype."""
        t = self.t
        return () if t.dtype[value] == low else (self.born(t.dims[value], low, "adapter in the low dtype"),)


def _backward(t: Tape, x: int, sides: list[Side], over: bool) -> tuple[Step, ...]:
    """Gradients of the adapters, then the input's, written `over` the input where that is given as `out`."""
    low, made = t.dtype[x], _Steps(t)
    waiting: list[tuple[int, int]] = []
    for number, side in enumerate(sides):
        t.scope = f"{side.base.packing.kind.name}, fused"
        for at, value in ((number + number + 1, side.down), (number + number + 1 + 1, side.up)):
            if t.grad[value]:
                waiting += _adapter(made, at, value, side.narrow, low)
    for number, side in enumerate(sides):
        _input(made, side, low, (x, over) if not number else None)
    made.steps.append(Step(Code.LEFT))
    for at, one in waiting:  # the engine casts what is returned to the dtype of the weight
        made.steps.append(Step(Code.GRAD, at))
        made.dead(one)
    return tuple(made.steps)


def _adapter(made: _Steps, at: int, value: int, narrow: Dims, low: DType) -> list[tuple[int, int]]:
    """The gradient of one weight of an adapter: a product with the tokens' narrow side; with its storage, if cast."""
    cast = made.cast(value, low)
    inner = made.born(narrow, low, "gradient of the narrow side")
    made.dead(*cast)
    if made.t.dtype[value] == low:
        made.steps.append(Step(Code.GRAD, at))
        made.dead(inner)
        return []
    out = made.born(made.t.dims[value], low, "gradient of the adapter in the low dtype")
    made.dead(inner)
    return [(at, out)]


def _input(made: _Steps, side: Side, low: DType, first: tuple[int, bool] | None) -> None:
    """dx (+)= dy W, then dx += (dropped != 0) * (dy B (s A)). `first`: the input, and whether dx lies where it lay."""
    t, base, dims = made.t, side.base, made.t.dims[side.base.x]
    scales = quantised.scales(t, base)
    whole = made.born(t.dims[base.weight], base.packing.compute, "weight, again")
    made.steps += [Step(code, 0, one) for code in (Code.BORN, Code.DEAD) for one in scales]
    if first is None:
        term = made.born(dims, low, "gradient of the input by one projection")
        made.dead(term, whole)
    else:
        x, over = first
        made.steps.append(Step(Code.TURN, 0, t.store[x]) if over else Step(Code.GRAD, 0))
        made.dead(whole)
    mask = made.born(dims, BOOL, "entries that were not dropped")
    cast = made.cast(side.up, low)
    inner = made.born(side.narrow, low, "gradient of the narrow side")
    made.dead(*cast)
    other = made.cast(side.down, low)
    scaled = made.born(t.dims[side.down], low, "scaled down projection")
    made.dead(*other)
    product = made.born(dims, low, "gradient of the input by the adapter")
    made.dead(inner, scaled)
    kept = made.born(dims, low, "gradient of the input by the adapter, where not dropped")
    made.dead(mask, product, kept)


def applies(t: Tape, x: int) -> bool:
    """Whether the function can be given this input: its product is written in the input's own dtype."""
    return t.dtype[x] != FP32

"""Routed experts one after the other, each a gated feed-forward of its own over the tokens that chose it.

So Transformers ran them before 5.0 (models/mixtral/modeling_mixtral.py, MixtralSparseMoeBlock.forward, and qwen2_moe,
qwen3_moe, olmoe alike; 4.45.2, 4.48.1). Every expert is taken to have the mean number of tokens. Weights are frozen.
"""

from __future__ import annotations

from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import INT64
from trainledger.ledger import aten, nn, quantised
from trainledger.ledger.activations import activation
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Experts, Packing


class Sides(NamedTuple):
    """Sizes of one expert: hidden states, its width, and the rows it is given."""

    hidden: Axis
    inner: Axis
    rows: Axis


def experts(t: Tape, spec: Experts, ins: list[int]) -> int:
    """The sum over each token's experts, weighed by their scores, in the hidden state's dtype."""
    x, scores, _ = ins
    count, halves, hidden = (axis.size for axis in spec.gate_up.dims[:3])
    slots = elements(t.dims[scores])
    inner = elements(spec.down.dims) // count // hidden
    assert halves % inner == 0
    rows = -(-slots // count)
    sides = Sides(Axis(Dim.HIDDEN, hidden), Axis(Dim.FFN, inner), Axis(Dim.TOKENS, rows))
    own = aten.to(t, scores, t.dtype[x])
    total = t.run(Prim("zeros", (), (t.fresh(t.dims[x], t.dtype[x], False, "sum over experts"),), (), (), ()))
    chosen = (Axis(Dim.SLOTS, slots), Axis(Dim.EXPERTS, count))
    mask = t.run(Prim("one_hot", (), (t.fresh(chosen, INT64, False, "chosen experts, one hot"),), (), (), ()))
    named: list[int] = []
    for _ in range(count):
        total, named = _expert(t, spec, (x, own, total), sides, named)
    t.end([own, mask, *named])
    return total


def _expert(t: Tape, spec: Experts, ins: tuple[int, int, int], sides: Sides, named: list[int]) -> tuple[int, list[int]]:
    """One expert's share added to the sum; names of the expert before end as they are bound again."""
    x, scores, total = ins
    places = [t.fresh((sides.rows,), INT64, False, name) for name in ("which choice", "which token")]
    t.run(Prim("nonzero", (), tuple(places), (), (), ()))
    t.end(named[:2])
    state = _taken(t, x, places[1:], (sides.rows, sides.hidden), "tokens of an expert")
    t.end(named[2:3])
    made = _feed_forward(t, spec, state, sides)
    weight = _taken(t, scores, places, (sides.rows, Axis(Dim.ONE, 1)), "scores of an expert")
    weighed = aten.mul(t, made, weight, "weighed")
    t.end(named[3:])
    added = _added(t, total, aten.to(t, weighed, t.dtype[total]), places[1])
    return added, [*places, state, weighed]


def _feed_forward(t: Tape, spec: Experts, x: int, sides: Sides) -> int:
    """w2(act(w1(x)) * w3(x))."""
    gate = activation(t, spec.act, _linear(t, x, sides.inner, spec.gate_up.packed))
    product = aten.mul(t, gate, _linear(t, x, sides.inner, spec.gate_up.packed), "gated")
    return _linear(t, product, sides.hidden, spec.down.packed)


def _linear(t: Tape, x: int, out: Axis, packing: Packing | None) -> int:
    rows, inner = t.dims[x]
    dtype = t.autocast or t.dtype[x] if packing is None else packing.compute
    weight = t.outside((out, inner), dtype, False)
    if packing is None:
        return nn.flat_linear(t, x, (rows, out), weight)
    return quantised.linear(t, quantised.Base(x, (rows, out), weight, None, packing))


def _taken(t: Tape, x: int, places: list[int], dims: tuple[Axis, ...], name: str) -> int:
    """Rows by index: saves the indices; backward adds the rows into zeros of x's size."""
    grad = t.grad[x]
    out = t.fresh(dims, t.dtype[x], grad, name)
    return t.run(Prim("index", (x, *places), (out,), tuple(places) if grad else (), aten.GRAD0, ()))


def _added(t: Tape, total: int, x: int, place: int) -> int:
    """total[place] += x: saves the place; backward picks the rows of the incoming gradient."""
    out = t.alias(total)
    t.grad[out] = t.grad[total] or t.grad[x]
    saves = (place,) if t.grad[x] else ()
    steps = (Step(Code.PASS, 0), Step(Code.GRAD, 1))
    return t.run(Prim("index_add_", (total, x, place), (out,), saves, steps, ()))

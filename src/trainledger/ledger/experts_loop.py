"""Routed experts one after the other, each a gated feed-forward of its own over the tokens that chose it.

So Transformers ran them before 5.0 (models/mixtral/modeling_mixtral.py, MixtralSparseMoeBlock.forward, and qwen2_moe,
qwen3_moe, olmoe alike; 4.45.2 to 4.57.1). How many tokens chose each is not known: frozen ones are taken to have the
mean number, trained ones what the plan's `expert_load` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import BOOL, INT64
from trainledger.ledger import aten, nn, quantised
from trainledger.ledger.activations import activation
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import ActKind, Experts, Looped, Packing, Weight

Product = Callable[[int, int, Axis], int]  # of a tensor with an expert's gate, up or down, to so many columns
GATE, UP, DOWN = range(len(("gate", "up", "down")))


class Sides(NamedTuple):
    """Sizes of one expert: hidden states, its width, and the rows it is given."""

    hidden: Axis
    inner: Axis
    rows: Axis


class Expert(NamedTuple):
    """One expert: its sizes, its activation, and its products."""

    sides: Sides
    act: ActKind
    product: Product


def experts(t: Tape, spec: Experts, ins: list[int]) -> int:
    """Frozen experts: the sum over each token's, weighed by their scores, in the hidden state's dtype."""
    count, halves, hidden = (axis.size for axis in spec.gate_up.dims[:3])
    inner = elements(spec.down.dims) // count // hidden
    assert halves % inner == 0
    rows = -(-elements(t.dims[ins[1]]) // count)
    sides = Sides(Axis(Dim.HIDDEN, hidden), Axis(Dim.FFN, inner), Axis(Dim.TOKENS, rows))
    packed = (spec.gate_up.packed, spec.gate_up.packed, spec.down.packed)
    one = Expert(sides, spec.act, lambda x, which, out: _frozen(t, x, out, packed[which]))
    total, kept = _summed(t, ins, [one] * count, False)
    t.end(kept)
    return total


def looped(t: Tape, spec: Looped, ins: list[int], linear: Callable[[Weight, int, Axis], int]) -> tuple[int, list[int]]:
    """Trained experts likewise, and what is named when the loop ends; `linear`: a tensor's product with a weight."""
    inner, hidden = spec.experts[0][GATE].dims
    tokens, slots = elements(t.dims[ins[0]]) // hidden.size, elements(t.dims[ins[1]])

    def expert(weights: tuple[Weight, Weight, Weight], rows: int) -> Expert:
        sides = Sides(hidden, inner, Axis(Dim.TOKENS, rows))
        return Expert(sides, spec.act, lambda x, which, out: linear(weights[which], x, out))

    rows = rows_of(slots, tokens, len(spec.experts), spec.load)
    return _summed(t, ins, [expert(*one) for one in zip(spec.experts, rows, strict=True)], spec.finds)


def rows_of(slots: int, tokens: int, count: int, load: float) -> list[int]:
    """Rows of each of `count` experts, which `slots` choices of `tokens` tokens are spread over.

    The fullest has `load` times the mean (0: every token) and comes last, where backward begins while all that was
    saved still lives; the others share the rest evenly, and have one at least.
    """
    full = min(math.ceil(load * slots / count) if load else tokens, tokens)
    others = count - 1
    return [*[max(-(-(slots - full) // others), 1) for _ in range(others)], full]


def _summed(t: Tape, ins: list[int], each: Sequence[Expert], finds: bool) -> tuple[int, list[int]]:
    x, scores, _ = ins
    slots, count = Axis(Dim.SLOTS, elements(t.dims[scores])), Axis(Dim.EXPERTS, len(each))
    own = aten.to(t, scores, t.dtype[x])
    total = t.run(Prim("zeros", (), (t.fresh(t.dims[x], t.dtype[x], False, "sum over experts"),), (), (), ()))
    mask = t.run(Prim("one_hot", (), (t.fresh((slots, count), INT64, False, "chosen experts, one hot"),), (), (), ()))
    found = _with_tokens(t, mask, count) if finds else mask
    named: list[int] = []
    for expert in each:
        part = mask
        if finds:
            part = t.fresh((slots,), INT64, False, "an expert's part of the mask")
            t.run(Prim("index", (mask,), (part,), (), (), ()))
        total, named = _expert(t, expert, (x, own, total, part), named)
    return total, [own, mask, found, *named]


def _with_tokens(t: Tape, mask: int, count: Axis) -> int:
    """The numbers of the experts that have tokens."""
    steps = (("sum", INT64), ("greater", BOOL), ("nonzero", INT64))
    for kind, dtype in steps:
        mask = t.run(Prim(kind, (mask,), (t.fresh((count,), dtype, False, "experts that have tokens"),), (), (), ()))
    return mask


def _expert(t: Tape, expert: Expert, ins: tuple[int, int, int, int], named: list[int]) -> tuple[int, list[int]]:
    """One expert's share added to the sum; names of the expert before end as they are bound again."""
    x, scores, total, mask = ins
    sides = expert.sides
    places = [t.fresh((sides.rows,), INT64, False, name) for name in ("which choice", "which token")]
    t.run(Prim("nonzero", (mask,), tuple(places), (), (), ()))
    t.end(named[:2])
    state = _taken(t, x, places[1:], (sides.rows, sides.hidden), "tokens of an expert")
    t.end(named[2:3])
    made = _feed_forward(t, expert, state)
    weight = _taken(t, scores, places, (sides.rows, Axis(Dim.ONE, 1)), "scores of an expert")
    weighed = aten.mul(t, made, weight, "weighed")
    t.end(named[3:])
    added = _added(t, total, aten.to(t, weighed, t.dtype[total]), places[1])
    return added, [*places, state, weighed]


def _feed_forward(t: Tape, expert: Expert, x: int) -> int:
    """w2(act(w1(x)) * w3(x))."""
    inner, product = expert.sides.inner, expert.product
    gate = activation(t, expert.act, product(x, GATE, inner))
    gated = aten.mul(t, gate, product(x, UP, inner), "gated")
    made = product(gated, DOWN, expert.sides.hidden)
    t.end([gated])  # the caller's name, until the layer returns
    return made


def _frozen(t: Tape, x: int, out: Axis, packing: Packing | None) -> int:
    rows, inner = t.dims[x]
    dtype = t.autocast or t.dtype[x] if packing is None else packing.compute
    weight = t.outside((out, inner), dtype, False)
    if packing is None:
        return nn.flat_linear(t, x, (rows, out), weight)
    return quantised.linear(t, quantised.Base(x, (rows, out), weight, None, packing))


def _taken(t: Tape, x: int, places: list[int], dims: tuple[Axis, ...], name: str) -> int:
    """Rows by index, of x with a dim of one: saves the indices; backward adds the rows into zeros of x's size, which
    arrive as a view."""
    grad = t.grad[x]
    seen = aten.rows(t, x)
    out = t.fresh(dims, t.dtype[x], grad, name)
    return t.run(Prim("index", (seen, *places), (out,), tuple(places) if grad else (), aten.GRAD0, ()))


def _added(t: Tape, total: int, x: int, place: int) -> int:
    """total[place] += x: saves the place and, for its shape alone, x; backward picks rows of the incoming gradient.

    Source: tools/autograd/derivatives.yaml, index_add: `expand_as(source)` (v2.4 to v2.13).
    """
    out = t.alias(total)
    t.grad[out] = t.grad[total] or t.grad[x]
    saves = (place, x) if t.grad[x] else ()
    steps = (Step(Code.PASS, 0), Step(Code.GRAD, 1))
    return t.run(Prim("index_add_", (total, x, place), (out,), saves, steps, ()))

"""Routers and routed experts on a tape, as Transformers' `grouped_mm_experts_forward` runs them.

Tokens are repeated once for every expert they take and sorted by expert; the two stacked weights multiply them in
groups. Sizes depend on tokens and `top_k` alone, not on which experts are chosen.

Sources: transformers (5.24.0) integrations/moe.py and the routers of models/mixtral, qwen2_moe, qwen3_moe, olmoe;
torch (v2.13) tools/autograd/derivatives.yaml: _grouped_mm, index, topk, div_; FunctionsManual.cpp: index_backward and
value_selecting_reduction_backward write into zeros in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, INT32, INT64
from trainledger.ledger import aten, nn
from trainledger.ledger.activations import activation
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model import program as p


def router(t: Tape, spec: p.Router, x: int, weight: int, layer: Callable[[int, Axis], int] | None = None) -> list[int]:
    """Logits, the scores of the chosen experts, and their numbers. `layer`: its linear layer's call, where that is one
    with an adapter."""
    experts, slots = t.dims[weight][0], Axis(Dim.SLOTS, spec.top_k)
    # a view of its own: under autocast its gradient waits there until the weight's cast ran backward
    if layer is not None:
        logits = layer(x, experts)
    else:
        logits = nn.flat_linear(t, x if spec.early else aten.view(t, x), (*t.dims[x][:-1], experts), weight)
    probs = aten.softmax(t, aten.to(t, logits, FP32) if spec.upcast else logits, FP32)
    dims = (*t.dims[x][:-1], slots)
    grad = t.grad[probs]
    scores, chosen = t.fresh(dims, FP32, grad, "scores"), t.fresh(dims, INT64, False, "chosen experts")
    t.run(Prim("topk", (probs,), (scores, chosen), (chosen,) if grad else (), aten.GRAD0, ()))
    if spec.normalise:
        scores = normalised(t, scores)
    if not spec.upcast:
        scores = aten.to(t, scores, t.dtype[x if spec.early else logits])
    t.end([probs])
    return [logits, scores, chosen]


def normalised(t: Tape, scores: int) -> int:
    """scores /= scores.sum(-1): in place, so that autograd copies the dividend first."""
    dims, grad = t.dims[scores], t.grad[scores]
    total = t.fresh((*dims[:-1], Axis(Dim.ONE, 1)), FP32, grad, "sum of scores")
    t.run(Prim("sum", (scores,), (total,), (), aten.PASS0, ()))
    out = t.alias(scores)
    if not grad:
        return t.run(Prim("div_", (scores, total), (out,), (), (), ()))
    before = t.fresh(dims, FP32, False, "scores before division")
    t.run(Prim("clone", (scores,), (before,), (), (), ()))
    kinds = ("quotient", "second quotient", "negated gradient", "gradient before reduction")
    made = [aten.temporary(t, dims, FP32, f"{kind} in backward") for kind in kinds]
    steps = (
        *(Step(Code.BORN, 1, one) for one in made),
        *(Step(Code.DEAD, 1, one) for one in reversed(made[:-1])),
        Step(Code.GRAD, 0),
        Step(Code.GRAD, 1),
        Step(Code.DEAD, 1, made[-1]),
    )
    return t.run(Prim("div_", (scores, total, before), (out,), (before, total), steps, ()))


class Order(NamedTuple):
    """Tokens sorted by expert: their rows and weights, the experts in order, the places they came from, where each
    expert's end, what else the code names; `slots`: dims of the choices."""

    slots: Dims
    rows: int
    weights: int
    order: int
    place: int
    ends: int
    named: tuple[int, ...]


def taken(t: Tape, x: int, at: int, dims: Dims, name: str) -> int:
    """Rows of x by index: saves the index; backward adds the rows into zeros of x's size."""
    out = t.fresh(dims, t.dtype[x], t.grad[x], name)
    return t.run(Prim("index", (x, at), (out,), (at,) if t.grad[x] else (), aten.GRAD0, ()))


def grouped(t: Tape, x: int, weight: int, ends: int, dims: Dims) -> int:
    """Each expert's rows times its matrix; the rows are cast to the weight's dtype, autocast does not know the call."""
    x = aten.to(t, x, t.dtype[weight])
    grad = t.grad[x] or t.grad[weight]
    out = t.fresh(dims, t.dtype[weight], grad, "product by expert")
    saves = ((x,) if t.grad[weight] else ()) + ((weight,) if t.grad[x] else ()) + ((ends,) if grad else ())
    return t.run(Prim("grouped_mm", (x, weight, ends), (out,), saves, (Step(Code.GRAD, 1), Step(Code.GRAD, 0)), ()))


def sorted_tokens(t: Tape, x: int, scores: int, chosen: int, count: Dims) -> Order:
    """Tokens, once for every expert they take, sorted by expert."""
    slots, hidden = t.dims[chosen], t.dims[x][-1]
    order, place = t.fresh(slots, INT64, False, "experts in order"), t.fresh(slots, INT64, False, "places in order")
    t.run(Prim("sort", (chosen,), (order, place), (), (), ()))
    rows = taken(
        t, x, aten.plain(t, "token of each place", slots, INT64, (place,)), (*slots, hidden), "tokens by expert"
    )
    weights = taken(t, aten.view(t, scores), place, slots, "scores by expert")
    narrow = aten.plain(t, "experts as int32", slots, INT32, (order,))
    tokens = aten.plain(t, "tokens per expert", count, INT32, (narrow,))
    ends = aten.plain(t, "ends of experts", count, INT32, (tokens,))
    return Order(slots, rows, weights, order, place, ends, (narrow, tokens))


def experts(t: Tape, spec: p.Experts, ins: list[int], read: Callable[[p.Weight], int]) -> int:
    """The sum over each token's experts, weighed by their scores, in the hidden state's dtype. `read`: the value of a
    weight, which an adapter makes when it is first read."""
    x, scores, chosen = ins
    o = sorted_tokens(t, x, scores, chosen, spec.gate_up.dims[:1])
    both = grouped(t, o.rows, read(spec.gate_up), o.ends, (*o.slots, spec.gate_up.dims[1]))
    inner = (*o.slots, spec.down.dims[-1])
    gate, up = aten.chunk(t, both, (inner, inner))
    product = aten.mul(t, activation(t, spec.act, gate), up, "gated")
    t.end([both, gate, up])
    out = grouped(t, product, read(spec.down), o.ends, (*o.slots, t.dims[x][-1]))
    t.end([product])
    return in_token_order(t, o, out, x)


def in_token_order(t: Tape, o: Order, out: int, x: int) -> int:
    """Experts' results weighed, in the order of tokens again, and summed over each token's."""
    weighed = aten.mul(t, out, aten.view(t, o.weights, (*o.slots, Axis(Dim.ONE, 1))), "weighed")
    back = _inverse(t, o.place, o.slots)
    restored = taken(t, weighed, back, (*o.slots, t.dims[x][-1]), "in token order")
    total = _summed(t, restored, t.dims[x])
    result = aten.to(t, total, t.dtype[x])
    t.end([o.order, o.place, *o.named, o.ends, o.rows, o.weights, out, back, restored, total])
    return result


def _inverse(t: Tape, place: int, slots: Dims) -> int:
    """Where each token's experts stand in order."""
    back = aten.plain(t, "places of tokens", slots, INT64, (place,))
    counted = aten.plain(t, "arange", slots, INT64, (place,))
    return t.run(Prim("index_put_", (back, place, counted), (t.alias(back),), (), (), ()))


def _summed(t: Tape, x: int, dims: Dims) -> int:
    """The sum over a token's experts, under autocast in fp32. Its gradient is a view over the experts: copied as a
    whole when seen by places again, or before that when it is cast to the summands' dtype."""
    raised = t.autocast is not None and t.dtype[x] != FP32
    by_token = aten.view(t, x) if raised else aten.heads_first(t, x, t.dims[x])
    out = t.fresh(dims, FP32 if raised else t.dtype[x], t.grad[x], "sum over experts")
    return t.run(Prim("sum", (by_token,), (out,), (), aten.GRAD0 if raised else aten.PASS0, ()))

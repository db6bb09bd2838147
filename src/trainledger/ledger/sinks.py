"""gpt-oss on a tape: eager attention with a sink beside the keys, the router, experts with biases and clamped gates.

Sources: transformers (5.24.0) models/gpt_oss/modeling_gpt_oss.py, integrations/moe.py; torch (v2.13)
tools/autograd/derivatives.yaml: clamp, max; FunctionsManual.cpp: clamp_backward.
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL, FP32, INT64
from trainledger.ledger import aten, nn
from trainledger.ledger.attention import repeated, scored, valued
from trainledger.ledger.experts import Order, grouped, in_token_order, sorted_tokens, taken
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model import program as p


def eager(t: Tape, qkv: tuple[int, int, int], spec: p.Attention, mask: int | None, sinks: int) -> tuple[int, int]:
    """The output, and the weights without the sink's."""
    q, k, v = qkv[0], repeated(t, qkv[1], spec.heads), repeated(t, qkv[2], spec.heads)
    scores = scored(t, (q, k), spec, 1 < spec.kv_heads < spec.heads)
    if mask is not None:
        scores = aten.add(t, scores, mask, "masked scores")
    dims = t.dims[scores]
    wide = (*dims[:-1], Axis(Dim.KEY_SEQUENCE, dims[-1].size + 1))
    one = (*dims[:-1], Axis(Dim.ONE, 1))
    seen = aten.view(t, sinks)
    every = t.run(Prim("expand", (seen,), (t.alias(seen, one),), (), (Step(Code.GRAD, 0),), ()))
    kind = aten.promote(t.dtype[scores], t.dtype[every])
    both = aten.cat(t, [aten.to(t, scores, kind), aten.to(t, every, kind)], wide, "scores and sinks")
    largest = _largest(t, both, one)
    less = aten.sub(t, both, largest)
    t.end([both, largest])
    soft = aten.softmax(t, less, t.dtype[less])
    kept = aten.dropout(t, aten.part(t, soft, dims), spec.dropout)
    weights = aten.to(t, kept, t.dtype[v])
    t.end([scores])
    result = valued(t, (weights, v), spec, 1 < spec.kv_heads < spec.heads)
    t.end([k, v, every, less, soft, weights])
    return result, weights


def _largest(t: Tape, x: int, dims: Dims) -> int:
    """The largest of each row; saves its place."""
    grad = t.grad[x]
    out, place = t.fresh(dims, t.dtype[x], grad, "largest"), t.fresh(dims, INT64, False, "its place")
    return t.run(Prim("max", (x,), (out, place), (place,) if grad else (), aten.GRAD0, ()))


def best_router(t: Tape, spec: p.BestRouter, x: int, weight: int, bias: int | None) -> list[int]:
    """Logits, the scores of the chosen experts, and their numbers."""
    slots = (*t.dims[x][:-1], Axis(Dim.SLOTS, spec.top_k))
    logits = nn.flat_linear(t, x, (*t.dims[x][:-1], t.dims[weight][0]), weight, bias)
    if spec.high:
        logits = aten.to(t, logits, FP32)
    grad = t.grad[logits]
    best, chosen = t.fresh(slots, t.dtype[logits], grad, "best logits"), t.fresh(slots, INT64, False, "chosen experts")
    t.run(Prim("topk", (logits,), (best, chosen), (chosen,) if grad else (), aten.GRAD0, ()))
    scores = aten.softmax(t, best, t.dtype[best])
    if spec.high:
        scores = aten.to(t, scores, t.dtype[x])
    t.end([best])
    return [logits, scores, chosen]


def clamped(t: Tape, spec: p.ClampedExperts, ins: list[int], read: Callable[[p.Weight], int]) -> int:
    """The sum over each token's experts, weighed by their scores, in the hidden state's dtype. `read`: the value of a
    weight, which an adapter makes when it is first read."""
    x, scores, chosen = ins
    o = sorted_tokens(t, x, scores, chosen, spec.gate_up.dims[:1])
    slots = o.slots
    wide, hidden = spec.gate_up.dims[-1], t.dims[x][-1]
    first = taken(t, read(spec.gate_up_bias), o.order, (*slots, wide), "biases by expert")
    both = _biased(t, o, o.rows, (read(spec.gate_up), first), (*slots, wide))
    made = gated(t, both, (*slots, spec.down.dims[1]))
    t.end([both])
    second = taken(t, read(spec.down_bias), o.order, (*slots, hidden), "biases by expert")
    t.end([first])
    out = _biased(t, o, made, (read(spec.down), second), (*slots, hidden))
    t.end([made])
    result = in_token_order(t, o, out, x)
    t.end([second])
    return result


def _biased(t: Tape, o: Order, x: int, by: tuple[int, int], dims: Dims) -> int:
    weight, bias = by
    return aten.add_into(t, grouped(t, x, weight, o.ends, dims), bias)


def gated(t: Tape, both: int, dims: Dims) -> int:
    """(up + 1) x gate x sigmoid(a gate) of the clamped halves."""
    gate, up = aten.part(t, both, dims), aten.part(t, both, dims)
    low = _clamped(t, gate, 1)
    t.end([gate])
    mid = _clamped(t, up, 2)
    t.end([up])
    curve = aten.unary(t, "sigmoid", aten.scale(t, low, "scaled gate"), saves_out=True)
    glu = aten.mul(t, low, curve, "gated")
    out = aten.mul(t, aten.shift(t, mid), glu, "gated")
    t.end([low, mid, glu])
    return out


def _clamped(t: Tape, x: int, sides: int) -> int:
    """Clamped from above, or from both sides: saves its input; backward compares it once more for every side."""
    grad = t.grad[x]
    out = t.fresh(t.dims[x], t.dtype[x], grad, "clamped")
    made = [aten.temporary(t, (), t.dtype[x], "zero")]
    made += [aten.temporary(t, t.dims[x], BOOL, "where it is within a limit") for _ in range(sides)]
    steps = (
        *(Step(Code.BORN, 0, one) for one in made),
        Step(Code.GRAD, 0),
        *(Step(Code.DEAD, 0, one) for one in made),
    )
    return t.run(Prim("clamp", (x,), (out,), (x,) if grad else (), steps, ()))

"""Llama 4's router and experts on a tape: every expert sees every token, times its score.

Sources: transformers (5.24.0) models/llama4/modeling_llama4.py, Llama4Router, Llama4TextMoe, Llama4TextExperts; torch
(v2.13) tools/autograd/derivatives.yaml: repeat, scatter, sum.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, INT64
from trainledger.ledger import aten, nn
from trainledger.ledger.activations import activation
from trainledger.ledger.tape import Prim, Tape
from trainledger.model.operations_every import EveryExpert, SigmoidRouter


def router(t: Tape, spec: SigmoidRouter, x: int, weight: int) -> list[int]:
    """Logits and scores, [tokens, experts]."""
    logits = nn.flat_linear(t, x, (*t.dims[x][:-1], t.dims[weight][0]), weight)
    grad, dtype = t.grad[logits], t.dtype[logits]
    slots = (*t.dims[x][:-1], Axis(Dim.SLOTS, spec.top_k))
    best, chosen = t.fresh(slots, dtype, grad, "best logits"), t.fresh(slots, INT64, False, "chosen experts")
    t.run(Prim("topk", (logits,), (best, chosen), (chosen,) if grad else (), aten.GRAD0, ()))
    filled = t.fresh(t.dims[logits], dtype, False, "minus infinity")
    t.run(Prim("full_like", (logits,), (filled,), (), (), ()))
    written = t.alias(filled)
    t.grad[written] = grad
    t.run(Prim("scatter_", (best, chosen, filled), (written,), (chosen,) if grad else (), aten.GRAD0, ()))
    curve = aten.unary(t, "sigmoid", aten.to(t, written, FP32), saves_out=True)
    scores = aten.to(t, curve, dtype)
    t.end([best, chosen, written])
    return [logits, scores]


def experts(t: Tape, spec: EveryExpert, ins: list[int], gate_up: int, down: int) -> list[int]:
    """Scored tokens of every expert, and what the experts make of them."""
    x, scores = ins
    count = t.dims[gate_up][0]
    every: Dims = (count, *t.dims[x])
    grad = t.grad[x]
    repeated = t.run(
        Prim("repeat", (x,), (t.fresh(every, t.dtype[x], grad, "tokens of every expert"),), (), aten.GRAD0, ())
    )
    turned = _turned(t, scores, (count, *t.dims[x][:-1], Axis(Dim.ONE, 1)))
    scored = aten.mul(t, repeated, turned, "scored tokens")
    t.end([repeated])
    wide = t.dims[gate_up][-1]
    both = _product(t, scored, gate_up, (*every[:-1], wide))
    inner = (*every[:-1], t.dims[down][1])
    gate, up = aten.chunk(t, both, (inner, inner))
    made = _product(t, aten.mul(t, up, activation(t, spec.act, gate), "gated"), down, every)
    t.end([both, gate, up])
    return [scored, made]


def _product(t: Tape, x: int, weight: int, dims: Dims) -> int:
    """A batched product of each expert's tokens and matrix."""
    low = nn.lowered(t, weight)
    return aten.matmul(t, nn.lowered(t, x), low, dims, "product of every expert")


def _turned(t: Tape, scores: int, dims: Dims) -> int:
    """Scores expert by expert, which copies them where there are several."""
    return aten.copy(t, scores, dims) if dims[0].size > 1 else aten.view(t, scores, dims)


def summed(t: Tape, made: int, shared: int) -> int:
    """The shared expert's result, to which the sum over experts is added in place."""
    dtype = t.dtype[made] if t.autocast is None else FP32
    out = t.fresh(t.dims[shared], dtype, t.grad[made], "sum over experts")
    # a view over experts of the incoming gradient, copied by its cast, or by the view by tokens before it
    t.run(Prim("sum", (made,), (out,), (), aten.GRAD0, ()))
    return aten.add_into(t, shared, out)

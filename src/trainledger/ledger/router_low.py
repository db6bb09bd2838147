"""LFM2's router on a tape: sigmoids in the logits' dtype, chosen with a correction, divided by their sum.

Sources: transformers (5.24.0) models/lfm2_moe/modeling_lfm2_moe.py, Lfm2MoeTopKRouter.forward; torch (v2.13)
tools/autograd/derivatives.yaml: topk, gather, div.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32, INT64
from trainledger.ledger import aten, nn
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead
from trainledger.model.operations_experts import LowRouter


def router(t: Tape, spec: LowRouter, x: int, weight: int) -> list[int]:
    """Logits, the scores of the chosen experts, and their numbers."""
    count = t.dims[weight][:1]
    logits = nn.flat_linear(t, x, (*t.dims[x][:-1], *count), weight)
    scores = aten.unary(t, "sigmoid", logits, saves_out=True)
    grad, slots = t.grad[scores], (*t.dims[x][:-1], Axis(Dim.SLOTS, spec.top_k))
    by = aten.add(t, scores, t.outside(count, FP32, False)) if spec.corrected else scores
    best, chosen = t.fresh(slots, t.dtype[by], grad, "best scores"), t.fresh(slots, INT64, False, "chosen experts")
    t.run(Prim("topk", (by,), (best, chosen), (chosen,) if grad else (), aten.GRAD0, ()))
    if spec.corrected:
        made = t.fresh(slots, t.dtype[scores], grad, "scores")
        scores = t.run(Prim("gather", (scores, chosen), (made,), (chosen,) if grad else (), aten.GRAD0, ()))
    else:
        scores = best
    if spec.normalise:
        scores = _divided(t, scores)
    out = aten.scale(t, scores)
    t.end([by, best] if spec.corrected else [])
    return [logits, out, chosen]


def _divided(t: Tape, scores: int) -> int:
    """scores / (scores.sum(-1) + a small number); under autocast the sum is fp32."""
    dims, dtype, grad = t.dims[scores], t.dtype[scores], t.grad[scores]
    summed = t.fresh((*dims[:-1], Axis(Dim.ONE, 1)), FP32 if t.autocast is not None else dtype, grad, "sum of scores")
    same = t.dtype[summed] == dtype
    t.run(Prim("sum", (scores,), (summed,), (), aten.PASS0 if same else aten.GRAD0, ()))
    total, wide = aten.shift(t, summed), aten.promote(dtype, t.dtype[summed])
    out = t.fresh(dims, wide, grad, "scores by their sum")
    kinds = ("quotient", "second quotient", "negated gradient", "gradient before reduction")
    made = [aten.temporary(t, dims, wide, f"{kind} in backward") for kind in kinds]
    whole = () if same else (aten.temporary(t, dims, wide, "gradient before cast"),)
    steps = (
        *born(*made), *dead(*reversed(made[:-1])), *born(*whole), Step(Code.GRAD, 0), *dead(*whole),
        Step(Code.GRAD, 1), *dead(made[-1]),
    )  # fmt: skip
    return t.run(Prim("div", (scores, total), (out,), (scores, total) if grad else (), steps, ()))

"""Gemma 4's router on a tape: its input times a trained vector, and the chosen scores times their experts' own factors.

Sources: transformers (5.24.0) models/gemma4/modeling_gemma4.py, Gemma4TextRouter.forward; torch (v2.13)
tools/autograd/derivatives.yaml: index, topk, div_.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32, INT64
from trainledger.ledger import aten
from trainledger.ledger.experts import normalised, taken
from trainledger.ledger.tape import Prim, Tape
from trainledger.model.operations_scaled import ScaledBest


def weighted(t: Tape, x: int, weight: int) -> int:
    """x times a vector, times a number; the expression keeps the first product until the second is made."""
    return aten.scale(t, aten.mul(t, x, weight, "times a vector"), "scaled")


def best(t: Tape, spec: ScaledBest, logits: int, scales: int) -> list[int]:
    """All probabilities, the scores of the chosen experts, and their numbers."""
    probs = aten.softmax(t, logits, FP32)
    dims, grad = (*t.dims[logits][:-1], Axis(Dim.SLOTS, spec.top_k)), t.grad[probs]
    values, chosen = t.fresh(dims, FP32, grad, "best scores"), t.fresh(dims, INT64, False, "chosen experts")
    t.run(Prim("topk", (probs,), (values, chosen), (chosen,) if grad else (), aten.GRAD0, ()))
    scores = normalised(t, values)
    own = taken(t, scales, chosen, dims, "factors of the chosen")
    out = aten.mul(t, scores, own, "scaled scores")
    t.end([probs, scores])
    return [probs, out, chosen]

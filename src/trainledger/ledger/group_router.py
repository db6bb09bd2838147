"""Routers in fp32 that choose among groups of experts, on a tape.

Sources: transformers (5.24.0) DeepseekV2TopkRouter.forward, DeepseekV3TopkRouter.forward; torch (v2.13)
tools/autograd/derivatives.yaml: gather, masked_fill, topk. What only the choice reads has no gradient: its graph ends
with the router's names.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL, FP32, INT64
from trainledger.ledger import aten, nn
from trainledger.ledger.experts import normalised
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import GroupRouter

BEST = ("first", "second")  # of each group, whose corrected scores stand for it


def router(t: Tape, spec: GroupRouter, x: int, weight: int) -> list[int]:
    """Logits, the scores of the chosen experts, and their numbers."""
    if not spec.high:
        return _plain(t, spec, x, weight)
    flat = aten.view(t, x)
    dims = (*t.dims[x][:-1], t.dims[weight][0])
    # arguments are evaluated from the first to the last
    high = aten.to(t, flat, FP32)
    wide = aten.to(t, weight, FP32)
    logits = nn.flat_linear(t, high, dims, wide)
    t.end([high, wide])
    if spec.corrected is None:
        scores, chosen, named = _softmaxed(t, spec, logits)
    else:
        scores, chosen, named = _corrected(t, spec, logits)
    out = aten.scale(t, scores, "scaled scores")
    t.end([flat, scores, *named])
    return [logits, out, chosen]


def _plain(t: Tape, spec: GroupRouter, x: int, weight: int) -> list[int]:
    """Sigmoids in fp32 of logits in the model's dtype, gathered where their corrected values are the best of all.

    Source: transformers (5.24.0) MiniMaxM2TopKRouter.forward.
    """
    assert spec.corrected is not None
    flat = aten.view(t, x)
    logits = nn.flat_linear(t, flat, (*t.dims[x][:-1], t.dims[weight][0]), weight)
    probs = aten.unary(t, "sigmoid", aten.to(t, logits, FP32), saves_out=True)
    first = aten.plain(t, "add", t.dims[probs], FP32, (probs, t.outside(spec.corrected.dims, FP32, False)))
    scores, chosen, values = _gathered(t, spec, probs, first)
    scores = normalised(t, scores)
    t.end([flat, probs, first, values])
    return [logits, scores, chosen]


def _gathered(t: Tape, spec: GroupRouter, probs: int, by: int) -> tuple[int, int, int]:
    """Scores where others are the best, the numbers of these, and what these are."""
    slots, grad = (*t.dims[probs][:-1], Axis(Dim.SLOTS, spec.top_k)), t.grad[probs]
    values = t.fresh(slots, FP32, False, "best corrected scores")
    chosen = t.fresh(slots, INT64, False, "chosen experts")
    t.run(Prim("topk", (by,), (values, chosen), (), (), ()))
    scores = t.fresh(slots, t.dtype[probs], grad, "scores")
    t.run(Prim("gather", (probs, chosen), (scores,), (chosen,) if grad else (), aten.GRAD0, ()))
    return scores, chosen, values


def _softmaxed(t: Tape, spec: GroupRouter, logits: int) -> tuple[int, int, list[int]]:
    """The best of a softmax, in the best groups alone where there are groups."""
    probs, named = aten.softmax(t, logits, FP32), list[int]()
    if spec.groups:
        best = _groups(t, spec, probs)
        each = aten.plain(t, "max", best, FP32, (probs,))
        places = aten.plain(t, "max", best, INT64, (probs,))  # which its node keeps as long as its result is named
        mask, more = _mask(t, spec, each, t.dims[probs])
        named += [probs, *more, *([places] if t.grad[probs] else [])]
        probs = _masked(t, probs, mask)
    scores, chosen = _best(t, probs, spec.top_k)
    return scores, chosen, [*named, probs]


def _corrected(t: Tape, spec: GroupRouter, logits: int) -> tuple[int, int, list[int]]:
    """Sigmoids, gathered where their corrected values are the best of the best groups."""
    assert spec.corrected is not None
    probs = aten.unary(t, "sigmoid", logits, saves_out=True)
    dims = t.dims[probs]
    first = aten.plain(
        t, "add", dims, aten.promote(t.dtype[probs], FP32), (probs, t.outside(spec.corrected.dims, FP32, False))
    )
    best = _groups(t, spec, probs)
    two = (*best, Axis(Dim.SLOTS, len(BEST)))
    values = aten.plain(t, "topk", two, FP32, (first,))
    places = aten.plain(t, "topk", two, INT64, (first,))
    each = aten.plain(t, "sum", best, FP32, (values,))
    mask, more = _mask(t, spec, each, dims)
    second = aten.plain(t, "masked_fill", dims, FP32, (first, mask))
    scores, chosen, _ = _gathered(t, spec, probs, second)
    named = [probs, second, *more, *([places, mask] if t.grad[probs] else [])]
    if spec.normalise:
        scores, total = _divided(t, scores)
        named.append(total)
    return scores, chosen, named


def _divided(t: Tape, scores: int) -> tuple[int, int]:
    """scores /= scores.sum(-1) + a small number: in place, so that autograd copies the dividend first. Under autocast
    the sum is fp32."""
    dims, dtype, grad = t.dims[scores], t.dtype[scores], t.grad[scores]
    one = (*dims[:-1], Axis(Dim.ONE, 1))
    summed = t.fresh(one, FP32 if t.autocast is not None else dtype, grad, "sum of scores")
    same = t.dtype[summed] == dtype
    t.run(Prim("sum", (scores,), (summed,), (), aten.PASS0 if same else aten.GRAD0, ()))
    total = aten.shift(t, summed)
    out = t.alias(scores)
    if not grad:
        return t.run(Prim("div_", (scores, total), (out,), (), (), ())), total
    before = t.fresh(dims, dtype, False, "scores before division")
    t.run(Prim("clone", (scores,), (before,), (), (), ()))
    kinds = ("quotient", "second quotient", "negated gradient", "gradient before reduction")
    wide = aten.promote(dtype, t.dtype[total])
    made = [aten.temporary(t, dims, wide, f"{kind} in backward") for kind in kinds]
    whole = () if same else (aten.temporary(t, dims, wide, "gradient before cast"),)
    steps = (
        *(Step(Code.BORN, 1, one) for one in made),
        *(Step(Code.DEAD, 1, one) for one in reversed(made[:-1])),
        *(Step(Code.BORN, 0, one) for one in whole),
        Step(Code.GRAD, 0),
        *(Step(Code.DEAD, 0, one) for one in whole),
        Step(Code.GRAD, 1),
        Step(Code.DEAD, 1, made[-1]),
    )
    return t.run(Prim("div_", (scores, total, before), (out,), (before, total), steps, ())), total


def _groups(t: Tape, spec: GroupRouter, scores: int) -> Dims:
    return (*t.dims[scores][:-1], Axis(Dim.SLOTS, spec.groups))


def _mask(t: Tape, spec: GroupRouter, each: int, dims: Dims) -> tuple[int, list[int]]:
    """Which experts are in none of the best groups; what the code names on the way."""
    kept = (*dims[:-1], Axis(Dim.SLOTS, spec.kept))
    values, chosen = t.fresh(kept, FP32, False, "scores of groups"), t.fresh(kept, INT64, False, "chosen groups")
    t.run(Prim("topk", (each,), (values, chosen), (), (), ()))
    groups = aten.plain(t, "zeros_like", t.dims[each], FP32, (each, chosen))
    scores = aten.plain(t, "expand, clone", dims, FP32, (groups,))
    truth = aten.plain(t, "bool", dims, BOOL, (scores,))
    return aten.plain(t, "not", dims, BOOL, (truth,)), [each, chosen, groups, scores]


def _masked(t: Tape, scores: int, mask: int) -> int:
    """Scores of other groups' experts set to zero: saves the mask."""
    grad = t.grad[scores]
    out = t.fresh(t.dims[scores], t.dtype[scores], grad, "scores of chosen groups")
    return t.run(Prim("masked_fill", (scores, mask), (out,), (mask,) if grad else (), aten.GRAD0, ()))


def _best(t: Tape, scores: int, top_k: int) -> tuple[int, int]:
    dims, grad = (*t.dims[scores][:-1], Axis(Dim.SLOTS, top_k)), t.grad[scores]
    made, chosen = t.fresh(dims, FP32, grad, "best scores"), t.fresh(dims, INT64, False, "chosen experts")
    t.run(Prim("topk", (scores,), (made, chosen), (chosen,) if grad else (), aten.GRAD0, ()))
    return made, chosen

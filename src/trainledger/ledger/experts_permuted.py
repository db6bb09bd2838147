"""torchtitan's router and routed experts of 2025: rows are sent to the ranks of their experts, copied by local expert
with padding, run through three grouped products, copied and sent back, weighed in fp32, and added up.

Source: torchtitan/models/moe.py and distributed/expert_parallel.py (d0cdb1433).
"""

from __future__ import annotations

from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, INT32, INT64
from trainledger.facts.pithtrain import NAME as PITHTRAIN
from trainledger.ledger import aten, nn, rules_liger
from trainledger.ledger.activations import activation
from trainledger.ledger.experts import grouped, plain, taken
from trainledger.ledger.experts_torchtitan import exchanged, in_order, placed
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model import program as p


def apply(f: Frame, spec: p.Router | p.Experts | p.Looped, ins: list[int]) -> list[int]:
    """The router's or the experts' results."""
    if isinstance(spec, p.Router):
        return router(f.tape, spec, ins[0], f.need(spec.weight))
    assert isinstance(spec, p.Experts)
    assert spec.up is not None
    weights = f.need(spec.gate_up), f.need(spec.up), f.need(spec.down)
    whole = f.software.framework == PITHTRAIN
    return [experts(f.tape, spec, ins, weights, Sent(f.software.experts, whole))]


def router(t: Tape, spec: p.Router, x: int, weight: int) -> list[int]:
    """Logits, the scores of the chosen experts, and their numbers; a bias for balance is added for the choice alone."""
    tokens, slots = t.dims[x][:-1], Axis(Dim.SLOTS, spec.top_k)
    logits = nn.flat_linear(t, x, (*tokens, t.dims[weight][0]), weight)
    high = aten.to(t, logits, FP32)
    probs = aten.softmax(t, high, FP32)
    t.end([logits, high])
    dims = (*tokens, slots)
    biased = plain(t, "scores and bias", probs, t.dims[probs], FP32)
    best, chosen = t.fresh(dims, FP32, False, "best scores"), t.fresh(dims, INT64, False, "chosen experts")
    t.run(Prim("topk", (biased,), (best, chosen), (), (), ()))
    scores = taken(t, probs, chosen, dims, "scores")
    return [logits, aten.scale(t, scores), chosen]


class Sent(NamedTuple):
    """The ranks that experts are spread over, and whether one kernel runs the function and multiplies."""

    ranks: int
    gated: bool


def experts(t: Tape, spec: p.Experts, ins: list[int], weights: tuple[int, int, int], how: Sent) -> int:
    """The sum over each token's experts, weighed by their scores; `weights`: this rank's of gate, up and down."""
    x, _, chosen = ins
    gate, up, down = weights
    slots, hidden, inner = t.dims[chosen], t.dims[x][-1], t.dims[down][-1]
    counts, place, by_place, token, rows = in_order(t, ins, t.dims[gate][:1])
    if spec.adds:
        rows = t.run(Prim("copied to ranks", (rows,), (t.alias(rows),), (), (Step(Code.GRAD, 0),), ()))
    there = exchanged(t, rows, how.ranks)
    order = plain(t, "places by local expert", counts, slots, INT64)
    ends = plain(t, "ends of experts", counts, t.dims[counts], INT32)
    padded = aten.cat(t, [there], t.dims[there], "rows and one of zeros")
    moved = taken(t, padded, order, (*slots, hidden), "rows by local expert")
    t.end([padded])
    first = grouped(t, moved, gate, ends, (*slots, inner))
    if how.gated:
        product = rules_liger.gated(t, first, grouped(t, moved, up, ends, (*slots, inner)))
    else:
        act = activation(t, spec.act, first)
        product = aten.mul(t, act, grouped(t, moved, up, ends, (*slots, inner)), "gated")
    out = grouped(t, product, down, ends, (*slots, hidden))
    t.end([moved, product])
    back = exchanged(t, _put(t, out, order), how.ranks)
    t.end([out, there])
    score = aten.view(t, by_place, (*slots, Axis(Dim.ONE, 1)))
    high = aten.to(t, back, FP32)
    weighed = aten.to(t, aten.mul(t, high, score, "weighed"), t.dtype[x])
    t.end([back, high])
    result = _added(t, weighed, token, t.dims[x])
    t.end([counts, place, by_place, token, ends, score, weighed, rows, order])
    return result


def _put(t: Tape, rows: int, order: int) -> int:
    """The same without the row for padding, which backward fills with zeros."""
    out = placed(t, rows, order)
    return aten.part(t, out, t.dims[out])


def _added(t: Tape, rows: int, token: int, dims: Dims) -> int:
    """Rows added to their tokens; backward gathers the gradient's rows."""
    out = t.fresh(dims, t.dtype[rows], t.grad[rows], "sum over experts")
    steps = (Step(Code.GRAD, 0),)
    return t.run(Prim("scatter_add", (rows, token), (out,), (token,) if t.grad[rows] else (), steps, ()))

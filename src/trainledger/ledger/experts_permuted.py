"""torchtitan's router and routed experts of 2025: rows are sent to the ranks of their experts, copied by local expert
with padding, run through three grouped products, copied and sent back, weighed in fp32, and added up; from November on
put in the order of tokens and multiplied by their scores in fp32.

Source: torchtitan/models/moe.py and distributed/expert_parallel.py (d0cdb1433); models/moe/moe.py (e1f7f318a to
73a0e6979).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, INT32, INT64, DType
from trainledger.facts.pithtrain import NAME as PITHTRAIN
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan import Change, holds
from trainledger.ledger import aten, nn, rules_liger
from trainledger.ledger.activations import activation
from trainledger.ledger.experts import grouped, taken
from trainledger.ledger.experts_torchtitan import exchanged, in_order, normalised, placed, put_off
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model import program as p


def apply(f: Frame, spec: p.Router | p.Experts | p.Looped, ins: list[int]) -> list[int]:
    """The router's or the experts' results."""
    version, titan = f.software.release(TORCHTITAN), f.software.framework == TORCHTITAN
    unsorts = titan and holds(Change.UNSORTS, version)
    if isinstance(spec, p.Router):
        return router(f.tape, replace(spec, normalise=spec.normalise and unsorts), ins[0], f.need(spec.weight))
    assert isinstance(spec, p.Experts)
    assert spec.up is not None
    weights = f.need(spec.gate_up), f.need(spec.up), f.need(spec.down)
    whole = f.software.framework == PITHTRAIN
    rest = experts(f.tape, spec, ins, weights, Sent(f.software.experts, whole, unsorts))
    return put_off(f.tape, rest, titan and holds(Change.SHARED_BETWEEN, version))


def router(t: Tape, spec: p.Router, x: int, weight: int) -> list[int]:
    """Logits, the scores of the chosen experts, and their numbers; a bias for balance is added for the choice alone."""
    tokens, slots = t.dims[x][:-1], Axis(Dim.SLOTS, spec.top_k)
    logits = nn.flat_linear(t, x, (*tokens, t.dims[weight][0]), weight)
    high = aten.to(t, logits, FP32)
    probs = aten.softmax(t, high, FP32)
    t.end([logits, high])
    dims = (*tokens, slots)
    biased = aten.plain(t, "scores and bias", t.dims[probs], FP32, (probs,))
    best, chosen = t.fresh(dims, FP32, False, "best scores"), t.fresh(dims, INT64, False, "chosen experts")
    t.run(Prim("topk", (biased,), (best, chosen), (), (), ()))
    scores = taken(t, probs, chosen, dims, "scores")
    if spec.normalise:
        scores = normalised(t, scores)
    return [logits, aten.scale(t, scores), chosen]


class Sent(NamedTuple):
    """The ranks that experts are spread over; whether one kernel runs the function and multiplies; whether results are
    put in the order of tokens, and multiplied by their scores as matrices."""

    ranks: int
    gated: bool
    unsorts: bool = False


def experts(t: Tape, spec: p.Experts, ins: list[int], weights: tuple[int, int, int], how: Sent) -> Callable[[], int]:
    """What makes the sum over each token's experts, weighed by their scores, once their results are there; `weights`:
    this rank's of gate, up and down."""
    x, scores, chosen = ins
    gate, up, down = weights
    slots, hidden, inner = t.dims[chosen], t.dims[x][-1], t.dims[down][-1]
    if how.unsorts:  # no result depends on scores by place
        ins = [x, _quiet(t, scores), chosen]
    counts, place, by_place, token, rows = in_order(t, ins, t.dims[gate][:1])
    if spec.adds:
        rows = t.run(Prim("copied to ranks", (rows,), (t.alias(rows),), (), (Step(Code.GRAD, 0),), ()))
    there = exchanged(t, rows, how.ranks)
    order = aten.plain(t, "places by local expert", slots, INT64, (counts,))
    ends = aten.plain(t, "ends of experts", t.dims[counts], INT32, (counts,))
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
    named = [counts, place, by_place, token, ends, rows, order]
    if how.unsorts:
        return lambda: _unsorted(t, (back, place, scores), t.dims[x], named)
    return lambda: _weighed(t, (back, by_place, token), (t.dims[x], t.dtype[x]), named)


def _weighed(t: Tape, made: tuple[int, int, int], like: tuple[Dims, DType], named: list[int]) -> int:
    """Rows weighed in fp32, cast and added up by token; `made`: rows, scores by place, token numbers."""
    back, by_place, token = made
    dims, dtype = like
    score = aten.view(t, by_place, (*t.dims[back][:-1], Axis(Dim.ONE, 1)))
    high = aten.to(t, back, FP32)
    weighed = aten.to(t, aten.mul(t, high, score, "weighed"), dtype)
    t.end([back, high])
    result = _added(t, weighed, token, dims)
    t.end([*named, score, weighed])
    return result


def _quiet(t: Tape, scores: int) -> int:
    """The scores under a name that needs no gradient."""
    out = t.alias(scores)
    t.grad[out] = False
    return t.run(Prim("scores without a gradient", (scores,), (out,), (), (), ()))


def _unsorted(t: Tape, made: tuple[int, int, int], dims: Dims, named: list[int]) -> int:
    """Rows written into zeros by token and choice, in fp32 the second factor of one product for each token, of which
    the scores are the first; `made`: rows, their places, scores."""
    rows, place, scores = made
    all_dims = (*t.dims[scores], dims[-1])
    whole = t.fresh(all_dims, t.dtype[rows], t.grad[rows], "rows by token")
    t.run(Prim("zeros", (), (whole,), (), (), ()))
    put = t.alias(whole)
    saves = (place,) if t.grad[rows] else ()
    t.run(Prim("index_put_", (rows, place, whole), (put,), saves, (Step(Code.GRAD, 0),), ()))
    high = aten.to(t, put, FP32)
    total = t.fresh(dims, FP32, t.grad[high] or t.grad[scores], "sum over experts in fp32")
    t.run(Prim("bmm", (scores, high), (total,), (scores, high), (Step(Code.GRAD, 0), Step(Code.GRAD, 1)), ()))
    t.end([high])
    out = aten.to(t, total, t.dtype[rows])
    t.end([whole, put, total, *named, rows])
    return out


def _put(t: Tape, rows: int, order: int) -> int:
    """The same without the row for padding, which backward fills with zeros."""
    out = placed(t, rows, order)
    return aten.part(t, out, t.dims[out])


def _added(t: Tape, rows: int, token: int, dims: Dims) -> int:
    """Rows added to their tokens; backward gathers the gradient's rows."""
    out = t.fresh(dims, t.dtype[rows], t.grad[rows], "sum over experts")
    steps = (Step(Code.GRAD, 0),)
    return t.run(Prim("scatter_add", (rows, token), (out,), (token,) if t.grad[rows] else (), steps, ()))

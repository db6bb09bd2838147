"""torchtitan's router and routed experts on a tape, on one rank or over ranks.

Scores are made in fp32; tokens are gathered in the order of their experts, run through three grouped products, weighed
in fp32, and added up by a deterministic scatter. That one sorts an int64 number of every element that it adds. Where
experts are on other ranks, rows are sent there, put in the order of the experts there, and sent back.
Sources: torchtitan/models/common/{moe,token_dispatcher}.py, ops/scatter_add.py (1690e0aea); aten/src/ATen/native/
TensorAdvancedIndexing.cpp, _scatter_via_index_put, and cuda/Indexing.cu, index_put_with_sort_kernel (v2.13).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, stretched
from trainledger.base.sources import Basis
from trainledger.facts.dtypes import FP32, INT32, INT64
from trainledger.facts.kernels import SORTED_SCATTER
from trainledger.facts.torchtitan import NAME, Change, holds
from trainledger.ledger import aten
from trainledger.ledger.activations import activation
from trainledger.ledger.experts import grouped, taken
from trainledger.ledger.frame import Frame
from trainledger.ledger.sinks import gated
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model import program as p

EXCHANGE = "all_to_all"
GATE = "gate product"  # which the policy of selective recompute does not count among products


def router(t: Tape, spec: p.Router, x: int, weight: int, bias: int | None = None) -> list[int]:
    """Logits, the scores of the chosen experts, and their numbers; `bias`: of the logits."""
    tokens, slots = t.dims[x][:-1], Axis(Dim.SLOTS, spec.top_k)
    high, own = aten.to(t, x, FP32), aten.to(t, weight, FP32)
    logits = t.fresh((*tokens, t.dims[weight][0]), FP32, t.grad[x] or t.grad[weight], "logits")
    saves = ((high,) if t.grad[weight] else ()) + ((own,) if t.grad[x] else ())
    t.run(Prim(GATE, (high, own), (logits,), saves, (Step(Code.GRAD, 1), Step(Code.GRAD, 0)), ()))
    t.end([high, own])
    if bias is not None:
        logits = aten.add(t, logits, bias)
    probs = aten.softmax(t, logits, FP32)
    dims = (*tokens, slots)
    best, chosen = t.fresh(dims, FP32, False, "best scores"), t.fresh(dims, INT64, False, "chosen experts")
    t.run(Prim("topk", (probs,), (best, chosen), (), (), ()))
    scores = taken(t, probs, chosen, dims, "scores")
    if spec.normalise:
        scores = normalised(t, scores)
    return [logits, aten.scale(t, scores), chosen]


def normalised(t: Tape, scores: int) -> int:
    """Scores divided by their sum over a token's experts."""
    total = t.fresh((*t.dims[scores][:-1], Axis(Dim.ONE, 1)), FP32, t.grad[scores], "sum of scores")
    t.run(Prim("sum", (scores,), (total,), (), aten.PASS0, ()))
    return aten.mul(t, scores, aten.shift(t, total), "normalised scores")


def in_order(t: Tape, ins: list[int], experts_of: Dims) -> tuple[int, int, int, int, int]:
    """Tokens per expert, places in the order of experts, and by place: scores, token numbers, tokens."""
    x, scores, chosen = ins
    slots = t.dims[chosen]
    counts = aten.plain(t, "tokens per expert", experts_of, INT64, (chosen,))
    place = t.fresh(slots, INT64, False, "places in order")
    t.run(Prim("sort", (chosen,), (place,), (), (), (aten.temporary(t, slots, INT64, "experts in order"),)))
    by_place = taken(t, aten.view(t, scores), place, slots, "scores by expert")
    token = aten.plain(t, "token of each place", slots, INT64, (place,))
    return counts, place, by_place, token, taken(t, x, token, (*slots, t.dims[x][-1]), "tokens by expert")


class Sent(NamedTuple):
    """Rows on the ranks of their experts, in the order of these, and what else is named there; the same places."""

    rows: int
    named: tuple[int, ...]


def sent(t: Tape, rows: int, ranks: int) -> Sent:
    """Rows as the experts of this rank read them, as many as were sent."""
    if ranks == 1:
        return Sent(rows, ())
    there = exchanged(t, rows, ranks)
    order = aten.plain(t, "places by local expert", t.dims[rows][:-1], INT64, (there,))
    moved = taken(t, there, order, t.dims[rows], "rows by local expert")
    t.end([rows, there])
    return Sent(moved, (order,))


def sent_back(t: Tape, out: int, there: Sent, ranks: int) -> int:
    """Experts' results on the ranks of their tokens."""
    if ranks == 1:
        return out
    put = placed(t, out, there.named[0])
    back = exchanged(t, put, ranks)
    t.end([put])
    return back


def exchanged(t: Tape, rows: int, ranks: int) -> int:
    """Rows exchanged by experts' ranks, as many as were sent; backward sends the gradient back."""
    if ranks == 1:
        return rows
    out = t.fresh(t.dims[rows], t.dtype[rows], t.grad[rows], "received rows")
    return t.run(Prim(EXCHANGE, (rows,), (out,), (), (Step(Code.GRAD, 0),), ()))


def placed(t: Tape, rows: int, order: int) -> int:
    """Rows written in the order in which they came: backward takes them out of the gradient."""
    out = t.fresh(t.dims[rows], t.dtype[rows], t.grad[rows], "rows as they came")
    saves = (order,) if t.grad[rows] else ()
    return t.run(Prim("index_put_", (rows, order), (out,), saves, (Step(Code.GRAD, 0),), ()))


def apply(f: Frame, spec: p.Experts, ins: list[int]) -> list[int]:
    """The experts' result, or none yet where shared experts run before it is added up."""
    assert spec.up is not None
    weights = f.need(spec.gate_up), f.need(spec.up), f.need(spec.down)
    rest = experts(f.tape, spec, ins, weights, f.software.experts)
    return put_off(f.tape, rest, holds(Change.SHARED_BETWEEN, f.software.release(NAME)))


def put_off(t: Tape, rest: Callable[[], int], later: bool) -> list[int]:
    """The result of what is left of an operation; with `later` none yet, and whoever reads it first writes that."""
    if not later:
        return [rest()]
    scope = t.scope

    def written() -> int:
        t.scope, other = scope, t.scope
        result = rest()
        t.scope = other
        return result

    t.rest = written
    return []


def settle(t: Tape, names: dict[str, int], name: str) -> None:
    """Write the rest of the operation that makes this name's value, where one is left, and bind it."""
    if t.rest is None or not name:
        return
    rest, t.rest = t.rest, None
    t.end([names[name]] if name in names else [])
    names[name] = rest()


def experts(
    t: Tape, spec: p.Experts, ins: list[int], weights: tuple[int, int, int], ranks: int = 1
) -> Callable[[], int]:
    """What makes the sum over each token's experts, weighed by their scores, once their results are there; `weights`:
    of gate, up and down; `ranks`: that experts are spread over."""
    x, _, chosen = ins
    gate, up, down = weights
    slots, hidden, inner = t.dims[chosen], t.dims[x][-1], t.dims[down][-1]
    counts, place, by_place, token, rows = in_order(t, ins, t.dims[gate][:1])
    ends = aten.plain(t, "ends of experts", t.dims[counts], INT32, (counts,))
    there = sent(t, rows, ranks)
    act = activation(t, spec.act, grouped(t, there.rows, gate, ends, (*slots, inner)))
    product = aten.mul(t, act, grouped(t, there.rows, up, ends, (*slots, inner)), "gated")
    out = grouped(t, product, down, ends, (*slots, hidden))
    back = sent_back(t, out, there, ranks)
    gone, named = [there.rows, product, out, back], [counts, place, ends, *there.named]

    def rest() -> int:
        result = _summed(t, (back, by_place, token), stretched(t.dims[x], spec.over), gone)
        t.end(named)
        return result

    return rest


def best_router(t: Tape, spec: p.BestRouter, x: int, weight: int, bias: int | None) -> list[int]:
    """gpt-oss's: the scores of all experts, those of the chosen divided by their sum."""
    return router(t, p.Router(spec.weight, spec.top_k, True, True), x, weight, bias)


def clamped(t: Tape, ins: list[int], *weights: int, ranks: int = 1) -> int:
    """The same of experts with biases and clamped gates: each row's biases are taken by its expert's number.

    Source: torchtitan/models/gpt_oss/moe.py, GptOssGroupedExperts (1690e0aea).
    """
    x, _, chosen = ins
    gate_up, gate_up_bias, down, down_bias = weights
    slots, hidden, wide = t.dims[chosen], t.dims[x][-1], t.dims[gate_up][-1]
    counts, place, by_place, token, rows = in_order(t, ins, t.dims[gate_up][:1])
    ends = aten.plain(t, "ends of experts", t.dims[counts], INT32, (counts,))
    number = aten.plain(t, "expert of each place", slots, INT64, (counts,))
    first = taken(t, gate_up_bias, number, (*slots, wide), "biases by expert")
    there = sent(t, rows, ranks)
    both = aten.add(t, grouped(t, there.rows, gate_up, ends, (*slots, wide)), first)
    product = gated(t, both, (*slots, t.dims[down][1]))
    second = taken(t, down_bias, number, (*slots, hidden), "biases by expert")
    out = aten.add(t, grouped(t, product, down, ends, (*slots, hidden)), second)
    back = sent_back(t, out, there, ranks)
    gone = [there.rows, first, both, product, second, out, back]
    result = _summed(t, (back, by_place, token), t.dims[x], gone)
    t.end([counts, place, ends, number, *there.named])
    return result


def _summed(t: Tape, made: tuple[int, int, int], dims: Dims, gone: list[int]) -> int:
    """Rows weighed in fp32, cast and added up by token; `made`: rows, scores by place, token numbers; `gone`: what ends
    once they are weighed."""
    out, by_place, token = made
    score = aten.view(t, by_place, (*t.dims[out][:-1], Axis(Dim.ONE, 1)))
    weighed = aten.to(t, aten.mul(t, aten.to(t, out, FP32), score, "weighed"), t.dtype[out])
    t.end(gone)
    result = _scattered(t, weighed, token, dims)
    t.end([by_place, token, score, weighed])
    return result


def _scattered(t: Tape, rows: int, token: int, dims: Dims) -> int:
    """Rows added to the zeros of their tokens; backward gathers the gradient's rows."""
    zeros = t.fresh(dims, t.dtype[rows], False, "zeros")
    t.run(Prim("zeros", (), (zeros,), (), (), ()))
    out = t.fresh(dims, t.dtype[rows], t.grad[rows], "sum over experts")
    work = tuple(
        aten.temporary(t, t.dims[rows], INT64, f"deterministic scatter: {name}", Basis.ASSUMED)
        for name in SORTED_SCATTER.arrays
    )
    steps = (Step(Code.GRAD, 1),)
    made = t.run(Prim("scatter_add", (zeros, rows, token), (out,), (token,) if t.grad[rows] else (), steps, work))
    t.end([zeros])
    return made

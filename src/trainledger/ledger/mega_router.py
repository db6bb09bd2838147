"""Megatron-Core's router on a tape: logits, the experts of every token, and what keeps their load even.

Source: megatron/core/transformer/moe/{router,moe_utils}.py (0.14 to 0.19).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import BOOL, FP32, INT32, INT64, DType
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega import Mega
from trainledger.ledger.mega_routing import Routing
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.operations_megatron_moe import Routes

SINKHORN = "sinkhorn"


class _Choice(NamedTuple):
    """The router's tape, how it runs, and dims of a value for each expert, and for each chosen one, of every token."""

    tape: Tape
    routing: Routing
    every: Dims
    chosen: Dims

    def made(self, kind: str, x: int, dims: Dims, dtype: DType) -> int:
        """A tensor without a gradient that is computed from another."""
        return self.tape.run(Prim(kind, (x,), (self.tape.fresh(dims, dtype, False, kind),), (), (), ()))


def mega_of(f: Frame) -> Mega:
    """How Megatron runs."""
    assert f.software.mega is not None
    return f.software.mega


def routing_of(f: Frame) -> Routing:
    """How the mixture of experts runs."""
    routing = mega_of(f).routing
    assert routing is not None
    return routing


def router(f: Frame, spec: Routes, x: int) -> list[int]:
    """Probabilities and map of every token's experts, [tokens, experts]."""
    t, routing = f.tape, routing_of(f)
    tokens = Axis(Dim.TOKENS, elements(t.dims[x][:-1]))
    every = (tokens, spec.weight.dims[0])
    c = _Choice(t, routing, every, (tokens, Axis(Dim.SLOTS, spec.top_k)))
    logits = _logits(f, c, x, [f.need(one) for one in (spec.weight, spec.bias) if one is not None])
    if routing.forced:
        drawn, logits = logits, aten.unary(t, "random logits", logits)
        t.end([drawn])
    if routing.balance == SINKHORN:
        return _balanced(c, logits)
    probs, chart = _highest(c, logits)
    if routing.capacity is not None:
        probs, chart = _limited(c, (probs, chart), spec.top_k)
    if routing.auxiliary:
        probs = _with_loss(c, logits, probs)
    t.end([logits])
    return [probs, chart]


def _logits(f: Frame, c: _Choice, x: int, params: Sequence[int]) -> int:
    """A product in the router's dtype: Transformer Engine's reads others, PyTorch's reads casts; backward casts input
    and weight either way. `params`: the weight, and a bias where there is one."""
    t, wide = c.tape, c.routing.wide or c.tape.dtype[x]
    weight, more = params[0], tuple(Step(Code.GRAD, at) for at in range(1 + 1, 1 + len(params)))
    out = t.fresh(c.every, wide, True, "logits")
    engine = bool(c.routing.engine) or mega_of(f).engine is not None
    kind = "te linear" if engine else "linear"
    if wide == t.dtype[x]:
        return t.run(Prim(kind, (x, *params), (out,), (x, weight), (Step(Code.GRAD, 0), Step(Code.GRAD, 1), *more), ()))
    high, low, first, second = (
        aten.temporary(t, t.dims[of], wide, name)
        for of, name in (
            (x, "input cast"), (weight, "weight cast"), (x, "input's gradient"), (weight, "weight's gradient"),
        )
    )  # fmt: skip
    ahead = (Step(Code.BORN, 0, low), Step(Code.BORN, 0, first), Step(Code.DEAD, 0, low))
    behind = (Step(Code.BORN, 0, high), Step(Code.BORN, 0, second), Step(Code.DEAD, 0, high))
    ended = [Step(Code.DEAD, 0, one) for one in (first, second)]
    if engine:
        steps = (*ahead, *behind, Step(Code.GRAD, 0), ended[0], Step(Code.GRAD, 1), ended[1], *more)
        return t.run(Prim(kind, (x, *params), (out,), (x, weight), steps, ()))
    steps = (*ahead, Step(Code.GRAD, 0), ended[0], *behind, Step(Code.GRAD, 1), ended[1], *more)
    return t.run(Prim(kind, (x, *params), (out,), (x, weight), steps, (high, low)))


def _top(c: _Choice, x: int, dims: Dims) -> tuple[int, int]:
    """The highest values and where they were."""
    t = c.tape
    values, places = t.fresh(dims, t.dtype[x], t.grad[x], "highest"), t.fresh(dims, INT64, False, "places of highest")
    t.run(Prim("topk", (x,), (values, places), (places,) if t.grad[x] else (), aten.GRAD0, ()))
    return values, places


def _chart(c: _Choice, places: int, dtype: DType) -> int:
    """True at these places: zeros of the logits' dtype, ones scattered into them as int32, as booleans; or, where it
    must be deterministic, ones put into them."""
    zeros = c.made("zeros", places, c.every, dtype)
    if not c.routing.fixed:
        zeros = c.made("scatter", c.made("to int", zeros, c.every, INT32), c.every, INT32)
    return c.made("to bool", zeros, c.every, BOOL)


def _highest(c: _Choice, logits: int) -> tuple[int, int]:
    """The softmax of each token's highest logits, among zeros for all other experts."""
    t, wide = c.tape, c.tape.dtype[logits]
    scores, places = _top(c, logits, c.chosen)
    high = aten.softmax(t, scores, FP32)
    low = aten.to(t, high, wide)
    zeros = c.made("zeros", logits, c.every, wide)
    probs = t.alias(zeros) if c.routing.fixed else t.fresh(c.every, wide, False, "probabilities")
    t.grad[probs] = True
    t.run(Prim("scatter", (low, places, zeros), (probs,), (places,), aten.GRAD0, ()))
    chart = _chart(c, places, wide)
    t.end([scores, places, low])
    return probs, chart


def _limited(c: _Choice, made: tuple[int, int], top_k: int) -> tuple[int, int]:
    """Beyond an expert's capacity its least probable tokens are dropped; padded, it takes the next ones up to that."""
    t, (probs, chart) = c.tape, made
    tokens, experts = c.every
    limit = c.routing.capacity_of(tokens.size, experts.size, top_k)
    assert limit is not None
    if limit > tokens.size:
        mask = c.made("to bool", c.made("ones", probs, c.every, t.dtype[probs]), c.every, BOOL)
        named: list[int] = []
    else:
        named = list(_top(c, probs, (Axis(Dim.SLOTS, limit), experts)))
        zeros = c.made("zeros", probs, c.every, t.dtype[probs])
        mask = c.made("to bool", c.made("scatter", zeros, c.every, t.dtype[probs]), c.every, BOOL)
    if not c.routing.padded:
        mask = t.run(Prim("and", (chart, mask), (t.fresh(c.every, BOOL, False, "map within capacity"),), (), (), ()))
    kept = aten.mul(t, probs, mask, "probabilities within capacity")
    t.end([probs, chart, *named])
    return kept, mask


def _with_loss(c: _Choice, logits: int, probs: int) -> int:
    """The probabilities with a loss attached that is computed of a softmax over all experts and its own map."""
    t = c.tape
    scores = aten.softmax(t, logits, FP32)
    _, places = _top(c, scores, c.chosen)
    chart = _chart(c, places, t.dtype[logits])
    sums = t.fresh(c.every[1:], FP32, True, "loss of the router")
    counts = t.fresh(c.every[1:], INT64, False, "tokens of each expert")
    t.run(Prim("sum", (chart,), (counts,), (), (), ()))
    t.run(Prim("loss of the router", (scores, counts), (sums,), (counts,), aten.GRAD0, ()))
    out = t.alias(probs)
    t.run(Prim("attach", (probs, sums), (out,), (sums,), (Step(Code.PASS, 0), Step(Code.GRAD, 1)), ()))
    t.end([scores, places, chart, counts, sums])
    return out


def _balanced(c: _Choice, logits: int) -> list[int]:
    """Sinkhorn: experts by logits that are made doubly stochastic outside the graph, probabilities by the sigmoid of
    the logits, or their softmax where a token takes several."""
    t, wide = c.tape, c.tape.dtype[logits]
    high = logits if wide == FP32 else c.made("to float", logits, c.every, FP32)
    cost = c.made("exp", high, c.every, FP32)
    part = c.made("scaled", cost, c.every, FP32)
    normal = c.made("normalised", part, c.every, FP32)
    t.end([high, cost])
    values, places = _top(c, normal, c.chosen)
    if c.chosen[-1].size == 1:
        act = aten.unary(t, "sigmoid", logits, saves_out=True)
    else:
        act = aten.to(t, aten.softmax(t, logits, FP32), wide)
    chart = _chart(c, places, wide)
    probs = aten.mul(t, act, chart, "probabilities")
    t.end([logits, normal, values, places, act])
    return [probs, chart]

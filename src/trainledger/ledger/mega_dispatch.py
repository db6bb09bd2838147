"""Megatron-Core's ways of tokens to the ranks of their experts and back, on a tape.

Source: megatron/core/transformer/moe/{token_dispatcher,moe_utils}.py (0.14 to 0.19); transformer_engine/pytorch/
{permutation,triton/permutation}.py (2.7 to 2.17).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL, FP32, INT8, INT32, INT64, DType
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega_router import mega_of, routing_of
from trainledger.ledger.mega_routing import Routing
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.lines.parts import Parts
from trainledger.model.operations_megatron_moe import Combined, Dispatched, GroupedExperts, Returned

DIRECTIONS = ("forward", "backward")


class Way(NamedTuple):
    """The tape, how it runs, the ranks, and sizes: of the tokens, of what this rank sends to all experts, and of what
    its own are given."""

    tape: Tape
    routing: Routing
    parts: Parts
    hidden: Dims
    tokens: Axis
    sent: Axis

    @property
    def alone(self) -> bool:
        """Whether this rank shares its experts with no other."""
        return self.parts.ep * self.parts.etp == 1

    def made(self, kind: str, ins: Sequence[int], dims: Dims, dtype: DType) -> int:
        """A tensor without a gradient that is computed from others."""
        return self.tape.run(Prim(kind, tuple(ins), (self.tape.fresh(dims, dtype, False, kind),), (), (), ()))

    def moved(self, kind: str, x: int, dims: Dims) -> int:
        """Another tensor of rows of this one, and back."""
        t = self.tape
        return t.run(Prim(kind, (x,), (t.fresh(dims, t.dtype[x], t.grad[x], kind),), (), aten.GRAD0, ()))


def way_of(f: Frame, top_k: int, tokens: Axis, hidden: Dims, experts: int) -> Way:
    """The way of these tokens."""
    routing = routing_of(f)
    sent = Axis(Dim.SLOTS, routing.sent(tokens.size, experts, top_k))
    return Way(f.tape, routing, mega_of(f).parts, hidden, tokens, sent)


def tokens_of(f: Frame) -> Axis:
    """The tokens that this rank routes."""
    return Axis(Dim.TOKENS, f.setting.batch * f.setting.sequence // mega_of(f).ranks)


def dispatch(f: Frame, spec: Dispatched, ins: list[int]) -> list[int]:
    """What is sent, what is received with its probabilities, and the order of what was sent."""
    t, (x, probs, chart) = f.tape, ins
    hidden, experts = t.dims[x][-1:], t.dims[probs][-1].size
    way = way_of(f, spec.top_k, t.dims[probs][0], hidden, experts)
    rows = aten.rows(t, x)
    t.dims[rows] = (way.tokens, *hidden)
    if way.routing.gathers:
        return _gathered(way, (rows, probs, chart))
    if way.routing.flex:
        return _sent_once(way, (rows, probs, chart), spec.top_k)
    sent, scores, order = permuted(way, (rows, probs, chart), way.sent)
    if way.parts.ep == 1:
        return [sent, sent, scores, order]
    taken = way.routing.taken(way.tokens.size, experts, spec.top_k, Parts(ep=way.parts.ep))
    received = Axis(Dim.SLOTS, taken)
    tokens = way.moved("all-to-all", sent, (received, *hidden))
    return [sent, tokens, way.moved("all-to-all", scores, (received,)), order]


def permuted(way: Way, ins: tuple[int, int, int], rows: Axis) -> tuple[int, int, int]:
    """Tokens by expert, each as often as it is taken, with their probabilities; and the order they were put in."""
    if way.routing.fused:
        return _by_kernel(way, ins, rows)
    t, (x, probs, chart) = way.tape, ins
    flipped = tuple(reversed(t.dims[chart]))
    named: list[int] = []
    if way.routing.padded and way.routing.capacity is not None:
        turned = way.made("transposed", [way.made("to int8", [chart], t.dims[chart], INT8)], flipped, INT8)
        order = way.made("order", [_sorted(way, turned, flipped, INT8)], (rows,), INT64)
        flat = way.moved("transposed", probs, flipped)
        places = way.made("places of probabilities", [order], (rows,), INT64)
        named += [turned, flat, places]
    else:
        turned = way.made("transposed", [chart], flipped, BOOL)
        places = _sorted(way, turned, flipped, BOOL)
        order = way.made("order", [places], (rows,), INT64)
        flat = way.moved("transposed", probs, flipped)
        named += [turned, places]
    scores = t.fresh((rows,), t.dtype[probs], True, "probabilities by expert")
    t.run(Prim("index", (flat, places), (scores,), (places,), aten.GRAD0, ()))
    tokens = _taken(way, x, order, rows)
    t.end([*named, scores])
    return tokens, scores, order


def _sorted(way: Way, x: int, dims: Dims, dtype: DType) -> int:
    """argsort: the sorted values die with its return."""
    t = way.tape
    work = aten.temporary(t, dims, dtype, "sorted values")
    out = t.fresh(dims, INT64, False, "places in order")
    return t.run(Prim("argsort", (x,), (out,), (), (), (work,)))


def _taken(way: Way, x: int, order: int, rows: Axis) -> int:
    """index_select: saves the index; backward adds rows into zeros of the tokens."""
    t = way.tape
    out = t.fresh((rows, *way.hidden), t.dtype[x], True, "tokens by expert")
    return t.run(Prim("index_select", (x, order), (out,), (order,), aten.GRAD0, ()))


def _by_kernel(way: Way, ins: tuple[int, int, int], rows: Axis) -> tuple[int, int, int]:
    """Transformer Engine's permutation keeps its map of rows, int32 [tokens, 2 experts + 1]."""
    t, (x, probs, _) = way.tape, ins
    tokens, experts = t.dims[probs]
    chart = t.fresh((tokens, Axis(Dim.COLUMNS, experts.size * len(DIRECTIONS) + 1)), INT32, False, "map of rows")
    out = t.fresh((rows, *way.hidden), t.dtype[x], True, "tokens by expert")
    scores = t.fresh((rows,), t.dtype[probs], True, "probabilities by expert")
    steps = (Step(Code.GRAD, 0), Step(Code.GRAD, 1))
    t.run(Prim("permute", (x, probs), (out, scores, chart), (chart,), steps, ()))
    return out, scores, chart


def unpermuted(way: Way, x: int, order: int, tokens: Axis) -> int:
    """The sum of each token's rows: scattered into zeros; where it must be deterministic, second zeros are made while
    the first have a name, and index_add_ adds into them, whose node keeps the rows too."""
    t, dims = way.tape, (tokens, *way.hidden)
    out = t.fresh(dims, t.dtype[x], True, "sum of experts")
    if way.routing.fused:
        return t.run(Prim("unpermute", (x, order), (out,), (order,), aten.GRAD0, ()))
    if not way.routing.fixed:
        return t.run(Prim("scatter_add_", (x, order), (out,), (order,), aten.GRAD0, ()))
    work = (aten.temporary(t, dims, t.dtype[x], "zeros"),)
    return t.run(Prim("index_add_", (x, order), (out,), (order, x), aten.GRAD0, work))


def _gathered(way: Way, ins: tuple[int, int, int]) -> list[int]:
    """All tokens of the ranks that share the experts, in a buffer that all layers share, and those of them that this
    rank's experts take; what is received is what they take."""
    t, (x, probs, chart) = way.tape, ins
    if way.alone:
        return [x, x, probs, chart]
    group = way.parts.ep * way.parts.etp
    tokens, experts = Axis(Dim.TOKENS, way.tokens.size * group), t.dims[probs][1]
    everyone = way.made("all-gather", [chart], (tokens, experts), BOOL)
    chances = way.moved("all-gather", probs, (tokens, experts))
    whole = t.outside((tokens, *way.hidden), t.dtype[x], True)
    t.run(Prim("all-gather", (x,), (whole,), (), aten.GRAD0, ()))
    return [x, whole, chances, everyone]


def _sent_once(way: Way, ins: tuple[int, int, int], top_k: int) -> list[int]:
    """DeepEP: each rank is sent a token once, with the numbers and probabilities of its experts, which become a map of
    the tokens received. Its buffers are not PyTorch's. Source: moe/{token_dispatcher,fused_a2a}.py, _DeepepManager."""
    t, (x, probs, chart) = way.tape, ins
    experts = t.dims[probs][1].size
    received = Axis(Dim.TOKENS, way.routing.reached(way.tokens.size, experts, top_k, way.parts))
    slots, own = Axis(Dim.SLOTS, top_k), Axis(Dim.EXPERTS, experts // way.parts.ep)
    places = way.made("numbers of experts", [chart], (way.tokens, slots), INT64)
    chances = t.fresh((way.tokens, slots), FP32, True, "probabilities of experts")
    t.run(Prim("topk", (probs,), (chances,), (places,), aten.GRAD0, ()))
    numbers = way.made("numbers received", [places], (received, slots), INT64)
    tokens = t.fresh((received, *way.hidden), t.dtype[x], True, "tokens received")
    weights = t.fresh((received, slots), FP32, True, "probabilities received")
    steps = (Step(Code.GRAD, 0), Step(Code.GRAD, 1))
    t.run(Prim("dispatch", (x, chances), (tokens, weights), (), steps, ()))
    mine = way.made("map of own experts", [numbers], (received, own), BOOL)
    scores = t.fresh((received, own), FP32, True, "probabilities of own experts")
    t.run(Prim("scatter", (weights,), (scores,), (numbers,), aten.GRAD0, ()))
    t.end([places, chances, numbers, weights])
    return [x, tokens, scores, mine]


def arrived(f: Frame, spec: GroupedExperts, ins: list[int]) -> tuple[Way, list[int], list[int]]:
    """The rows of this rank's experts, in their order, with probabilities; and what puts them back."""
    t, (x, probs, chart) = f.tape, ins
    parts, own = mega_of(f).parts, spec.up.dims[0].size
    routing, hidden, tokens = routing_of(f), t.dims[x][-1:], tokens_of(f)
    way = way_of(f, spec.top_k, tokens, hidden, own * parts.ep)
    rows = Axis(Dim.SLOTS, routing.taken(tokens.size, own * parts.ep, spec.top_k, parts))
    if routing.gathers or routing.flex:
        return way, *_picked(way, (x, probs, chart), own, rows)
    named: list[int] = []
    if parts.etp > 1:
        x, probs = way.moved("all-gather", x, (rows, *hidden)), way.moved("all-gather", probs, (rows,))
    if own > 1:
        named = [*named, x, probs] if parts.etp > 1 else named
        y, scores = in_order(way, x), in_order(way, probs)
        t.end(named)
        return way, [y, scores], []
    return way, [x, probs], []


def in_order(way: Way, x: int) -> int:
    """Chunks of each rank and expert in another order."""
    t = way.tape
    if not way.routing.fused:
        return way.moved("chunks in order", x, t.dims[x])
    chart = t.fresh(t.dims[x][:1], INT32, False, "map of rows")
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "chunks in order")
    return t.run(Prim("sort chunks", (x,), (out, chart), (chart,), aten.GRAD0, ()))


def _picked(way: Way, ins: tuple[int, int, int], own: int, rows: Axis) -> tuple[list[int], list[int]]:
    """Of all tokens gathered those that this rank's experts take; returns them with probabilities, and their order."""
    t, (x, probs, chart) = way.tape, ins
    tokens, experts = t.dims[probs]
    part = (tokens, Axis(Dim.EXPERTS, own))
    flipped = tuple(reversed(part))
    mine, chances = chart, probs
    if own != experts.size:
        mine = way.made("own part of the map", [chart], part, BOOL)
        seen = t.alias(probs, part)
        t.run(Prim("slice", (probs,), (seen,), (), aten.GRAD0, ()))
        chances = aten.copy(t, seen)
    if way.routing.fused:
        wide = Axis(Dim.COLUMNS, own * len(DIRECTIONS) + 1)
        order = t.fresh((tokens, wide), INT32, False, "map of rows")
        out = t.fresh((rows, *way.hidden), t.dtype[x], True, "tokens by expert")
        t.run(Prim("permute", (x,), (out, order), (order,), aten.GRAD0, ()))
    else:
        turned = way.made("transposed", [mine], flipped, BOOL)
        places = _sorted(way, turned, flipped, BOOL)
        order = way.made("order", [places], (rows,), INT64)
        out = _taken(way, x, order, rows)
        t.end([turned, places])
    flat, mask = way.moved("transposed", chances, flipped), way.made("transposed", [mine], flipped, BOOL)
    scores = t.fresh((rows,), t.dtype[probs], True, "probabilities by expert")
    t.run(Prim("masked_select", (flat, mask), (scores,), (flat, mask), aten.GRAD0, ()))
    t.end([mine, chances])
    return [out, scores], [order, chances]


def left(way: Way, x: int, probs: int, back: list[int], several: bool) -> int:
    """The experts' results on their way back, on this rank still: in the order of ranks, or summed by token; of one
    expert that several ranks share, each rank's part of the sum."""
    t = way.tape
    if way.routing.gathers:
        group = way.parts.ep * way.parts.etp
        return unpermuted(way, x, back[0], Axis(Dim.TOKENS, way.tokens.size * group))
    if way.routing.flex:
        return unpermuted(way, x, back[0], t.dims[back[1]][0])
    named = [x]
    if several:
        x = in_order(way, x)
    if way.parts.etp > 1:
        named.append(x)
        x = scattered(way, x, t.dtype[probs], Axis(Dim.SLOTS, t.dims[x][0].size // way.parts.etp))
    t.end([one for one in named if one != x])
    return x


def scattered(way: Way, x: int, wide: DType, rows: Axis) -> int:
    """A reduce-scatter in the dtype of the probabilities."""
    t, low = way.tape, way.tape.dtype[x]
    part = way.moved("reduce-scatter", aten.to(t, x, wide), (rows, *way.hidden))
    return aten.to(t, part, low)


def returned(f: Frame, spec: Returned, x: int) -> int:
    """What the ranks of this rank's tokens' experts sent back."""
    t = f.tape
    way = way_of(f, spec.top_k, tokens_of(f), t.dims[x][-1:], spec.experts)
    if way.routing.gathers:
        return x if way.alone else scattered(way, x, way.routing.wide or t.dtype[x], way.tokens)
    if way.routing.flex:
        return way.moved("combine", x, (way.tokens, *way.hidden))
    return x if way.parts.ep == 1 else way.moved("all-to-all", x, (way.sent, *way.hidden))


def combined(f: Frame, spec: Combined, x: int, order: int) -> int:
    """This rank's tokens with the sum of their experts."""
    t = f.tape
    hidden, ranks = t.dims[x][-1:], mega_of(f).ranks
    way = way_of(f, spec.top_k, tokens_of(f), hidden, spec.experts)
    if not way.routing.gathers and not way.routing.flex:
        x = unpermuted(way, x, order, way.tokens)
    dims = tuple(Axis(one.dim, one.size // ranks) if one.dim is Dim.SEQUENCE else one for one in f.dims(hidden))
    return aten.view(t, x, dims)

"""The gated delta rule in chunks of tokens on a tape, as Transformers writes it out in Python.

Every chunk reads the state that the chunks before it left, and autograd keeps the states of all.
Sources: transformers (5.24.0) models/qwen3_next/modeling_qwen3_next.py, torch_chunk_gated_delta_rule; torch (v2.13)
torch/csrc/autograd/FunctionsManual.cpp: linalg_solve_triangular_backward, cumsum_backward, constant_pad_nd_backward;
aten/src/ATen/native/PadNd.cpp: a copy also where nothing is padded.
"""

from __future__ import annotations

from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL, FP32
from trainledger.facts.linear_attention import CHUNK
from trainledger.ledger import aten, latent, nn
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead
from trainledger.model.operations_linear import LinearHeads

ONE = Axis(Dim.ONE, 1)
GATES = len(("queries", "keys", "values"))  # what stands before strengths and decays


class Parts(NamedTuple):
    """Queries, keys and values by token and head, strengths (beta) and decays (g) of each head of values."""

    query: int
    key: int
    value: int
    beta: int
    decay: int


class Chunks(NamedTuple):
    """Dims: of one number for each token by chunk, and of the state; how many chunks there are; whether queries and
    keys lie token by token, as those do that were neither cast nor padded, so that products read copies of them."""

    tokens: Dims
    state: Dims
    chunks: int
    copied: bool

    def wide(self, last: Axis) -> Dims:
        """Of a row for each token."""
        return (*self.tokens, last)

    def one(self, last: Axis) -> Dims:
        """Of a row for each token of one chunk."""
        batch, heads, _, inner = self.tokens
        return (batch, heads, inner, last)


class Made(NamedTuple):
    """The state and what is read of it, both zeros; what all chunks read: values corrected within their chunk, keys
    that read the state, queries and keys decayed, scores within a chunk, a chunk's whole decay."""

    state: int
    core: int
    values: int
    reads: int
    query: int
    key: int
    scores: int
    fades: int


def chunked(t: Tape, given: Parts, heads: LinearHeads) -> int:
    """What is read from the state at each token, [batch, sequence, heads, head dim], in the queries' dtype."""
    like = t.dtype[given.query]
    parts, c = _padded(t, _raised(t, given, heads), like == FP32)
    made, named = _within(t, parts, c)
    core, last = _scanned(t, made, c)
    flat = aten.copy(t, core) if c.chunks > 1 else aten.view(t, core)  # a lone chunk is in the order of tokens
    t.end([core])
    sequence = t.dims[given.query][1]
    cut = flat if c.chunks * CHUNK.tokens == sequence.size else aten.part(t, flat, _rows(t, given.value))
    out = aten.to(t, aten.view(t, cut, t.dims[given.value]), like)
    t.end([parts.value, parts.beta, parts.decay, *named, *made[len((made.state, made.core)) :], *last, flat])
    return aten.copy(t, out) if like == FP32 else out  # what was not cast is no matrix of rows as it lies


def _rows(t: Tape, x: int) -> Dims:
    """[batch, heads, sequence, head dim] as the elements lie."""
    batch, sequence, *rest = t.dims[x]
    return (batch, rest[0], sequence, *rest[1:])


def _raised(t: Tape, given: Parts, heads: LinearHeads) -> Parts:
    """Heads of queries and keys repeated for those of values; all head by head in fp32; queries and keys normalised."""
    q, k = (repeated(t, x, heads) for x in (given.query, given.key))
    q32, k32, v32, beta, decay = (
        aten.to(t, aten.view(t, x, _rows(t, x)), FP32) for x in (q, k, given.value, given.beta, given.decay)
    )
    t.end([q, k])
    normal, second = _normalised(t, q32), _normalised(t, k32)
    query = aten.scale(t, normal)
    t.end([normal])
    return Parts(query, second, v32, beta, decay)


def repeated(t: Tape, x: int, heads: LinearHeads) -> int:
    """Heads of queries or keys, each as often as heads of values read it."""
    if heads.keys == heads.values:
        return x
    batch, sequence, _, width = t.dims[x]
    dims = (batch, sequence, heads.gates[0], width)
    out = t.fresh(dims, t.dtype[x], t.grad[x], "repeated heads")
    return t.run(Prim("expand, clone", (x,), (out,), (), (Step(Code.GRAD, 0),), ()))


def _normalised(t: Tape, x: int) -> int:
    """x over the root of the sum of its squares."""
    squares = aten.mul(t, x, x, "squares")
    total = t.fresh((*t.dims[x][:-1], ONE), FP32, t.grad[x], "sum of squares")
    t.run(Prim("sum", (squares,), (total,), (), aten.PASS0, ()))
    inverse = aten.rsqrt(t, aten.shift(t, total))
    out = aten.mul(t, x, inverse, "normalised")
    t.end([inverse, x])
    return out


def _padded(t: Tape, given: Parts, uncast: bool) -> tuple[Parts, Chunks]:
    """Copies of whole chunks, seen by chunk."""
    batch, heads, sequence = t.dims[given.decay]
    count = -(-sequence.size // CHUNK.tokens)
    inner = Axis(Dim.KEY_SEQUENCE, CHUNK.tokens)
    tokens = (batch, heads, Axis(Dim.BLOCKS, count), inner)
    made: list[int] = []
    for group in (given[:GATES], given[GATES:]):
        made += [_pad(t, x, (*tokens, *t.dims[x][len((batch, heads, sequence)) :])) for x in group]
        t.end(group)
    state = (batch, heads, t.dims[given.key][-1], t.dims[given.value][-1])
    return Parts(*made), Chunks(tokens, state, count, uncast and 1 < count == sequence.size / CHUNK.tokens)


def _pad(t: Tape, x: int, dims: Dims) -> int:
    out = t.fresh(dims, FP32, t.grad[x], "padded")
    return t.run(Prim("constant_pad_nd", (x,), (out,), (), aten.GRAD0, ()))


def _within(t: Tape, p: Parts, c: Chunks) -> tuple[Made, list[int]]:
    """What can be said of all chunks at once; and what else the code names."""
    strong = [aten.mul(t, x, _column(t, p.beta, c), "times strengths") for x in (p.value, p.key)]
    # seen by chunk: a system's solution comes column by column, so that gradients of these two are copied
    p = p._replace(query=aten.rows(t, p.query), key=aten.rows(t, p.key))
    seen = aten.heads_first if c.chunks > 1 else aten.view
    k_beta, v_beta = (seen(t, x, t.dims[x]) for x in reversed(strong))
    mask = _mask(t)
    total = _cumulative(t, p.decay)
    pairs = _pairwise(t, total, mask, c)
    system = _scored(t, (k_beta, p.key), pairs, c)
    scores = _scored(t, (p.query, p.key), pairs, c)
    faded = aten.mul(t, k_beta, _exp(t, total, c.wide(ONE)), "decayed keys times strengths")
    values = _solved(t, system, v_beta)
    reads = _solved(t, system, faded)
    state, core = _zeros(t, c.state, "state"), _zeros(t, t.dims[values], "what is read")
    named = [v_beta, k_beta, mask, total, pairs, system, faded]
    return Made(state, core, values, reads, *_faded(t, p, total, c, scores)), named


def _faded(t: Tape, p: Parts, total: int, c: Chunks, scores: int) -> tuple[int, int, int, int]:
    """Queries decayed from their chunk's start, keys up to its end, the scores, and each chunk's whole decay."""
    query = aten.mul(t, p.query, _exp(t, total, c.wide(ONE)), "decayed queries")
    t.end([p.query])
    end = aten.part(t, total, (*c.tokens[:-1], ONE))
    rest = aten.sub(t, end, total)
    key = aten.mul(t, p.key, _exp(t, rest, c.wide(ONE)), "decayed keys")
    t.end([p.key])
    fades = _exp(t, aten.part(t, total, c.tokens[:-1]), (*c.tokens[:-1], ONE, ONE))
    return query, key, scores, fades


def _column(t: Tape, x: int, c: Chunks) -> int:
    return aten.view(t, aten.rows(t, x), c.wide(ONE))


def _zeros(t: Tape, dims: Dims, name: str) -> int:
    return t.run(Prim("zeros", (), (t.fresh(dims, FP32, False, name),), (), (), ()))


def _exp(t: Tape, x: int, dims: Dims) -> int:
    return aten.view(t, aten.unary(t, "exp", x, saves_out=True), dims)


def _mask(t: Tape) -> int:
    """Which tokens of a chunk come after each."""
    square = (Axis(Dim.SEQUENCE, CHUNK.tokens), Axis(Dim.KEY_SEQUENCE, CHUNK.tokens))
    ones = t.run(Prim("ones", (), (t.fresh(square, BOOL, False, "ones"),), (), (), ()))
    return t.run(Prim("triu", (ones,), (t.fresh(square, BOOL, False, "later tokens"),), (), (), ()))


def _cumulative(t: Tape, x: int) -> int:
    """Sums up to each token; backward turns the gradient around, sums it and turns it back."""
    out = t.fresh(t.dims[x], FP32, t.grad[x], "cumulative decays")
    made = [aten.temporary(t, t.dims[x], FP32, name) for name in ("gradient turned around", "its sums")]
    steps = (*born(*made), Step(Code.GRAD, 0), *dead(*made))
    return t.run(Prim("cumsum", (x,), (out,), (), steps, ()))


def _pairwise(t: Tape, total: int, mask: int, c: Chunks) -> int:
    """The decay between every two tokens of a chunk."""
    inner = c.tokens[-1]
    rows = aten.view(t, total, c.wide(ONE))
    columns = aten.view(t, total, (*c.tokens[:-1], ONE, inner))
    apart = aten.sub(t, rows, columns)
    grad = t.grad[apart]
    past = t.fresh(t.dims[apart], FP32, grad, "decays of earlier tokens")
    t.run(Prim("masked_fill", (apart, mask), (past,), (mask,) if grad else (), aten.GRAD0, ()))
    t.end([apart])
    out = aten.unary(t, "exp", past, saves_out=True)
    t.end([past])
    return out


def _scored(t: Tape, both: tuple[int, int], pairs: int, c: Chunks) -> int:
    """Rows times columns of each chunk, times the decays between them."""
    rows, columns = (aten.copy(t, x) for x in both) if c.copied else both
    return aten.mul(t, _product(t, rows, columns, t.dims[pairs]), pairs, "decayed scores")


def _product(t: Tape, a: int, b: int, dims: Dims) -> int:
    """A matrix product of every chunk; autocast's casts of its arguments live until it returns."""
    low_b = nn.lowered(t, b)
    low_a = nn.lowered(t, a)
    out = aten.matmul(t, low_a, low_b, dims, "product")
    # its factors were seen as one batch of matrices: gradients are views of products
    t.prims[-1] = t.prims[-1]._replace(steps=(Step(Code.VIEW, 1), Step(Code.VIEW, 0)))
    t.end([low_a, low_b])
    return out


def _solved(t: Tape, system: int, right: int) -> int:
    """The solution of a triangular system: saves the system and the solution; backward solves once more."""
    grad = t.grad[system] or t.grad[right]
    out = t.fresh(t.dims[right], FP32, grad, "solution")
    again = aten.temporary(t, t.dims[right], FP32, "solution in backward")
    squares = [aten.temporary(t, t.dims[system], FP32, name) for name in ("product in backward", "negated product")]
    steps = (
        Step(Code.BORN, 1, again), *born(*squares), Step(Code.DEAD, 0, squares[0]), Step(Code.GRAD, 0),
        Step(Code.DEAD, 0, squares[1]), Step(Code.GIVE, 1, again),
    )  # fmt: skip
    return t.run(Prim("solve_triangular", (system, right), (out,), (system, out) if grad else (), steps, ()))


def _scanned(t: Tape, m: Made, c: Chunks) -> tuple[int, list[int]]:
    """Chunk after chunk: what it reads of the state, written into one tensor, and the state that it leaves."""
    state, core = m.state, m.core
    rows, inner = c.one(c.state[-1]), c.tokens[-1]
    named: list[int] = []
    for _ in range(c.chunks):
        value = aten.part(t, m.values, rows)
        new = aten.sub(t, value, _product(t, aten.part(t, m.reads, c.one(c.state[-2])), state, rows))
        t.end(named[:1])
        before = _product(t, aten.part(t, m.query, c.one(c.state[-2])), state, rows)
        t.end(named[1:])
        inside = _product(t, aten.part(t, m.scores, c.one(inner)), new, rows)
        core = latent.written(t, core, aten.add(t, before, inside))
        first = len(t.prims)
        fade = aten.part(t, m.fades, (*c.state[:2], ONE, ONE))
        less = aten.mul(t, state, fade, "decayed state")
        more = _product(t, aten.part(t, m.key, c.one(c.state[-2])), new, c.state)
        left = aten.add(t, less, more, "state")
        t.end([state])
        state, named = left, [new, before]
    _forgotten(t, first)
    return core, named


def _forgotten(t: Tape, first: int) -> None:
    """The last state is let go: with it goes the part of the graph from this primitive on, and what it saved."""
    for at in range(first, len(t.prims)):
        t.end(t.prims[at].saves)
        t.prims[at] = t.prims[at]._replace(saves=())

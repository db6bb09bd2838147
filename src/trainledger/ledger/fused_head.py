"""Heads fused with their loss: no logits of all tokens are ever made. What each makes is in facts/losses.py."""

from __future__ import annotations

from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32, INT64, DType
from trainledger.facts.losses import CHUNKED_HEAD, FUSED_LINEAR, of_release
from trainledger.ledger import aten
from trainledger.ledger.fused_chunks import Chunks
from trainledger.ledger.tape import Code, Prim, Step, Tape

ONE: Dims = (Axis(Dim.ONE, 1),)


class Inputs(NamedTuple):
    """Values of the hidden states and of the head's weight and bias, and the number of sequences."""

    hidden: int
    weight: int
    bias: int | None
    batch: int


class Shape(NamedTuple):
    """Tokens, width and vocabulary, and the dtype in which products are made."""

    tokens: int
    hidden: Axis
    vocab: Axis
    low: DType

    def rows(self, count: int, width: Axis | None = None) -> Dims:
        """Dims of that many tokens, each with the vocabulary's or another width."""
        return (Axis(Dim.TOKENS, count), self.vocab if width is None else width)


def _shape(t: Tape, x: int, weight: int) -> Shape:
    vocab, hidden = t.dims[weight]
    return Shape(elements(t.dims[x][:-1]), hidden, vocab, t.autocast or t.dtype[x])


def _without_last(t: Tape, x: int, batch: int, copied: bool) -> int:
    """Hidden states of all tokens but each sequence's last; a copy where the code asks for one of several. Tokens that
    are rows of a matrix already are all taken."""
    if len(t.dims[x]) < len(("batch", "sequence", "width")):
        return x
    first, sequence, width = t.dims[x]
    short = aten.part(t, x, (first, Axis(Dim.SEQUENCE, sequence.size - 1), width))
    return aten.copy(t, short) if copied and batch > 1 else short


def chunk_of(shape: Shape) -> int:
    """Tokens of one of Liger's chunks: about as many as make its logits as large as all hidden states."""
    factor = -(-shape.vocab.size // shape.hidden.size)
    least = -(-shape.tokens // factor)
    return min(shape.tokens, 1 << (least - 1).bit_length())


def by_tokens(t: Tape, inputs: Inputs, release: str) -> int:
    """Liger's: gradients of hidden states and weight are made in forward, chunk by chunk, and are handed on."""
    row = of_release(FUSED_LINEAR, release)
    x = _without_last(t, inputs.hidden, inputs.batch, True) if row.shifts else inputs.hidden
    shape = _shape(t, x, inputs.weight)
    ins = [value for value in (x, inputs.weight, inputs.bias) if value is not None]
    kept = [
        t.fresh(t.dims[value], t.dtype[value], False, f"gradient of {name}")
        for value, name in zip(ins, ("hidden states", "the head", "the bias"), strict=False)
        if t.grad[value]
    ]
    rows = t.fresh((Axis(Dim.TOKENS, shape.tokens),), FP32, False, "loss of each token")
    t.run(Prim("zeros", (), (*kept, rows), (), (), ()))
    trained = [at for at, value in enumerate(ins) if t.grad[value]]
    steps = tuple(Step(Code.TURN, at, t.store[value]) for at, value in zip(trained, kept, strict=True))
    chunk = chunk_of(shape)
    loop = Chunks(
        t, row, tuple(ins), shape.rows(chunk), shape.rows(chunk, shape.hidden), t.dims[inputs.weight], shape.low,
        casts=t.dtype[inputs.weight] != shape.low, trained=t.grad[inputs.weight],
    )  # fmt: skip
    loop.run(-(-shape.tokens // chunk))
    loss = t.fresh(ONE, FP32, bool(trained), "loss")
    t.run(Prim("fused linear cross-entropy", tuple(ins), (loss,), tuple(kept), steps, ()))
    t.end([*kept, rows])
    return loss


def by_vocabulary(t: Tape, inputs: Inputs, counted: int = 0, scattered: int = CHUNKED_HEAD.results) -> int:
    """TRL's: tiles of tokens by vocabulary rows, made again in backward; gradients are gathered in fp32 and cast.
    `counted`: tokens of each sequence that count (0: all but the last); `scattered`: results of each token."""
    whole = _without_last(t, inputs.hidden, inputs.batch, False)
    every = (Axis(Dim.TOKENS, elements(t.dims[whole][:-1])),)
    x = _picked(t, whole, counted * inputs.batch)
    shape = _shape(t, x, inputs.weight)
    tokens = (Axis(Dim.TOKENS, shape.tokens),)
    tile = (Axis(Dim.TOKENS, min(shape.tokens, CHUNKED_HEAD.tokens)), Axis(Dim.VOCAB, CHUNKED_HEAD.rows))
    ins = tuple(value for value in (x, inputs.weight, inputs.bias) if value is not None)
    grad = any(t.grad[value] for value in ins)
    target = t.fresh(tokens, INT64, False, "labels that count")
    t.run(Prim("index", (), (target,), (), (), ()))
    results = [t.fresh(tokens, FP32, grad, "log-probabilities")]
    results += [t.fresh(tokens, FP32, False, name) for name in ("logsumexp", "entropy")]
    work = [aten.temporary(t, tokens, FP32, "running numbers of each token") for _ in range(CHUNKED_HEAD.running)]
    work += [aten.temporary(t, tile, shape.low, "logits of a tile"), *_casts(t, shape, inputs.weight)]
    steps = _vocabulary_steps(t, shape, ins, tile)
    saves = (*ins[:1], target, *results[1:]) if grad else ()
    t.run(Prim("fused head by vocabulary", ins, tuple(results), saves, steps, tuple(work)))
    spread = [t.fresh(every, FP32, grad, "result of each token") for _ in range(scattered)]
    for value in spread:
        t.run(Prim("masked_scatter", (results[0],), (value,), (), (Step(Code.GRAD, 0),), ()))
    loss = t.fresh(ONE, FP32, grad, "loss")
    t.run(Prim("sum", (spread[0],), (loss,), (), (Step(Code.GRAD, 0),), ()))
    t.end([*results, *spread, target])
    return loss


def _picked(t: Tape, x: int, counted: int) -> int:
    """The tokens that count (0: all), gathered by a mask: saves their places; backward scatters into zeros."""
    every = elements(t.dims[x][:-1])
    tokens = (Axis(Dim.TOKENS, min(counted, every) if counted else every),)
    out = t.fresh((*tokens, t.dims[x][-1]), t.dtype[x], t.grad[x], "hidden states that count")
    places = [t.fresh(tokens, INT64, False, "places of tokens that count") for _ in t.dims[x][:-1]]
    return t.run(Prim("index", (x,), (out, *places), tuple(places), (Step(Code.GRAD, 0),), ()))


def _casts(t: Tape, shape: Shape, weight: int) -> list[int]:
    """Copies of a tile's hidden states and weight rows in the low dtype, where they are in another."""
    if t.dtype[weight] == shape.low:
        return []
    tokens = shape.rows(min(shape.tokens, CHUNKED_HEAD.tokens), shape.hidden)
    rows = (Axis(Dim.VOCAB, min(shape.vocab.size, CHUNKED_HEAD.rows)), shape.hidden)
    return [aten.temporary(t, dims, shape.low, "a tile's factors in the low dtype") for dims in (tokens, rows)]


def _vocabulary_steps(t: Tape, shape: Shape, ins: tuple[int, ...], tile: Dims) -> tuple[Step, ...]:
    """fp32 sums of the gradients, one tile's logits over and over, then casts to the dtypes of the inputs."""
    trained = [at for at, value in enumerate(ins) if t.grad[value]]
    sums = {at: aten.temporary(t, t.dims[ins[at]], FP32, "gradient in fp32") for at in trained}
    tiles = [aten.temporary(t, tile, shape.low, "logits of a tile"), *_casts(t, shape, ins[1])]
    cast = {at: t.dtype[ins[at]] != FP32 for at in trained}
    born = [Step(Code.BORN, 0, value) for value in (*sums.values(), *tiles)]
    # the factors of the last tile and its logits are bound until the function returns
    made = [Step(Code.GRAD, at) if cast[at] else Step(Code.GIVE, at, sums[at]) for at in trained]
    dead = [Step(Code.DEAD, 0, value) for value in (*(sums[at] for at in trained if cast[at]), *tiles)]
    return (*born, *made, *dead)

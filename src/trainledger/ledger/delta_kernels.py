"""Linear attention by packages' kernels on a tape: flash-linear-attention's delta rule, causal-conv1d's convolution.

Each is one function of autograd. The delta rule copies queries, keys and values, which are parts of one tensor, before
it saves them normalised; what all chunks make on the way is made again in backward.
Sources: the rows of facts.linear_attention.
"""

from __future__ import annotations

from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32, DType
from trainledger.facts.linear_attention import CHUNK
from trainledger.ledger import aten
from trainledger.ledger.aten import temporary
from trainledger.ledger.delta_rule import Parts
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.operations_linear import LinearHeads


class Shapes(NamedTuple):
    """Dims: of queries and keys, of the same repeated for heads of values, of values, of one number for each head, of
    the states of all chunks; the dtype of what kernels write, and that of sums over repeated heads."""

    key: Dims
    wide: Dims
    value: Dims
    gate: Dims
    states: Dims
    dtype: DType
    sums: DType


def chunked(t: Tape, given: Parts, heads: LinearHeads) -> int:
    """What is read from the state at each token, [batch, sequence, heads, head dim]."""
    s = _shapes(t, given, heads)
    ins = (given.query, given.key, given.value, given.decay, given.beta)
    query, key = (_whole(t, x, s) for x in (given.query, given.key))
    value = aten.plain(t, "copy", s.value, s.dtype, (given.value,))
    normal: list[int] = []
    for copy in (query, key):
        normal.append(aten.plain(t, "normalised", s.key, s.dtype, (copy,)))
        normal.append(aten.plain(t, "inverse norms", s.key[: len(s.gate)], FP32, (copy,)))
    total = aten.plain(t, "cumulative decays", s.gate, FP32, (given.decay,))
    system = aten.plain(
        t, "solved systems of chunks", (*s.gate, Axis(Dim.KEY_SEQUENCE, CHUNK.tokens)), s.dtype, (total,)
    )
    made = [aten.plain(t, name, dims, s.dtype, (system,)) for name, dims in _made(s)]
    grad = any(t.grad[x] for x in ins)
    out = t.fresh(s.value, s.dtype, grad, "what is read")
    saves = (*normal, value, total, given.beta, system) if grad else ()
    t.run(Prim("chunk_gated_delta_rule", (*ins, *made), (out,), saves, _backward(t, ins, s), ()))
    t.end([*(x for x in (query, key) if x not in ins), value, *normal, total, system, *made])
    return out


def _whole(t: Tape, x: int, s: Shapes) -> int:
    """Queries or keys copied out of the tensor that they are a part of; none where they were repeated before."""
    whole = elements(t.storages[t.store[x]].dims) == elements(s.key)
    return x if whole else aten.plain(t, "copy", s.key, s.dtype, (x,))


def _shapes(t: Tape, given: Parts, heads: LinearHeads) -> Shapes:
    batch, sequence, *_ = t.dims[given.query]
    tokens = (batch, sequence)
    wide, value = Axis(Dim.HEAD_DIM, heads.key_width), Axis(Dim.HEAD_DIM, heads.value_width)
    count = Axis(Dim.BLOCKS, -(-sequence.size // CHUNK.tokens))
    states = (batch, count, *heads.gates, wide, value)
    dtype = t.dtype[given.query]
    gate = (*tokens, *heads.gates)
    sums = FP32 if t.autocast is not None else dtype
    return Shapes((*tokens, *heads.key_dims), (*gate, wide), (*gate, value), gate, states, dtype, sums)


def _made(s: Shapes) -> tuple[tuple[str, Dims], ...]:
    """What forward and backward both make of all chunks."""
    return (
        ("keys that read the state", s.wide), ("values within chunks", s.value), ("states of chunks", s.states),
        ("corrected values", s.value),
    )  # fmt: skip


class _Steps:
    """Steps of a backward function, with what it makes under a name."""

    def __init__(self, t: Tape) -> None:
        self.tape = t
        self.steps: list[Step] = []

    def born(self, dims: Dims, dtype: DType, name: str) -> int:
        """A temporary is born."""
        made = temporary(self.tape, dims, dtype, name)
        self.steps.append(Step(Code.BORN, 0, made))
        return made

    def dead(self, *values: int) -> None:
        """Temporaries die."""
        self.steps += [Step(Code.DEAD, 0, value) for value in values]

    def turned(self, old: int, dims: Dims, dtype: DType, name: str) -> int:
        """A temporary is made of another, which then dies."""
        made = self.born(dims, dtype, name)
        self.dead(old)
        return made


def _backward(t: Tape, ins: tuple[int, ...], s: Shapes) -> tuple[Step, ...]:
    """Gradients of queries, keys, values, decays and strengths, in the order in which their storages come and go."""
    b = _Steps(t)
    again = [b.born(dims, s.dtype, name) for name, dims in _made(s)]
    first = b.born(s.value, s.dtype, "value gradients within chunks")
    slopes = b.born(s.states, s.dtype, "gradients of states")
    values = b.turned(first, s.value, s.dtype, "value gradients")
    query, key = (b.born(s.wide, s.dtype, f"{name} gradients by head") for name in ("query", "key"))
    repeated = elements(s.wide) != elements(s.key)
    parts = Axis(Dim.SLOTS, -(-s.key[-1].size // CHUNK.tile))
    decay = b.born((parts, *s.gate), FP32, "decay gradients by part")
    reads = b.born(s.wide, s.dtype, "gradients of keys that read the state")
    if repeated:
        query = b.turned(query, s.key, s.sums, "query gradients")
        key = b.turned(key, s.key, s.sums, "key gradients")
    decay = b.turned(decay, s.gate, FP32, "decay gradients")
    second = b.born(s.wide, s.dtype, "further key gradients by head")
    own = b.born(s.value, s.dtype, "gradients of values")
    more = b.born(s.gate, FP32, "further decay gradients")
    beta = b.born(s.gate, t.dtype[ins[-1]], "strength gradients")
    if repeated:
        second = b.turned(second, s.key, s.sums, "further key gradients")
    b.dead(values)
    decay = b.turned(decay, s.gate, FP32, "decay gradients, summed")
    b.dead(*again, slopes, reads, second, more)
    query = b.turned(query, s.key, s.dtype, "gradients of queries")
    key = b.turned(key, s.key, s.dtype, "gradients of keys")
    for at, made in enumerate((query, key, own, decay, beta)):
        b.steps.append(Step(Code.GIVE if t.grad[ins[at]] else Code.DEAD, at, made))
    return tuple(b.steps)


def convolved(t: Tape, x: int, weight: int) -> int:
    """The convolution and its function in one; a weight's gradient is summed in fp32."""
    grad = t.grad[x] or t.grad[weight]
    out = t.fresh(t.dims[x], t.dtype[x], grad, "convolution")
    summed = temporary(t, t.dims[weight], FP32, "gradient of taps")
    steps = (
        Step(Code.GRAD, 0), Step(Code.BORN, 1, summed),
        *((Step(Code.GIVE, 1, summed),) if t.grad[weight] and t.dtype[weight] == FP32 else
          (Step(Code.GRAD, 1), Step(Code.DEAD, 1, summed))),
    )  # fmt: skip
    return t.run(Prim("causal_conv1d", (x, weight), (out,), (x, weight) if grad else (), steps, ()))

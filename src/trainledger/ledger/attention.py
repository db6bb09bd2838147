"""Attention on a tape: fused kernels (flash, memory-efficient, cuDNN), and the ones written out in Python."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.kernels import PHILOX
from trainledger.ledger.aten import add, copy, dropout, heads_first, matmul, scale, softmax, to, unary, view
from trainledger.ledger.nn import lowered
from trainledger.ledger.tape import Code, Prim, Step, Storage, Tape
from trainledger.model.program import Attention


def _heads(dims: Dims, heads: int) -> Dims:
    """[batch, heads, sequence, head_dim] as the elements lie: dims of q, k or v with another number of heads."""
    return (*dims[:-2], Axis(Dim.HEADS, heads), dims[-1])


def repeated(t: Tape, x: int, heads: int) -> int:
    """Keys or values repeated to the number of query heads: a copy of an expanded view; backward sums the copies."""
    dims = _heads(t.dims[x], heads)
    if dims[-2].size == t.dims[x][-2].size:
        return x
    out = t.fresh(dims, t.dtype[x], t.grad[x], "repeated heads")
    return t.run(Prim("expand, clone", (x,), (out,), (), (Step(Code.GRAD, 0),), ()))


def flash(t: Tape, q: int, k: int, v: int, spec: Attention) -> int:
    """A fused kernel without a score matrix: saves q, k, v, its output and fp32 logsumexp per head and token."""
    v, k, q = lowered(t, v), lowered(t, k), lowered(t, q)
    grad = t.grad[q] or t.grad[k] or t.grad[v]
    batch, sequence, _, head = t.dims[q]
    out = t.fresh((batch, sequence, Axis(Dim.HEADS, spec.heads), head), t.dtype[q], grad, "output")
    lse = t.fresh((batch, Axis(Dim.HEADS, spec.heads), sequence), FP32, False, "logsumexp")
    seed = t.fresh((Axis(Dim.ELEMENTS, PHILOX.seeds),), INT64, False, "random seed")
    offset = t.fresh((Axis(Dim.ELEMENTS, PHILOX.offsets),), INT64, False, "random offset")
    saves = (q, k, v, out, lse, seed, offset) if grad else ()
    t.storages.append(Storage.of((batch, Axis(Dim.HEADS, spec.heads), sequence), FP32, f"{t.scope}: softmax_d"))
    delta = len(t.storages) - 1
    steps = (
        Step(Code.BORN, 0, delta),
        *(Step(Code.GRAD, at) for at in range(len((q, k, v)))),
        Step(Code.DEAD, 0, delta),
    )
    t.run(Prim("sdpa", (q, k, v), (out, lse, seed, offset), saves, steps, ()))
    # the kernel's output has the queries' layout; the code after it wants it token by token
    return copy(t, out) if spec.head_first else out


def eager(t: Tape, q: int, k: int, v: int, spec: Attention, mask: int | None) -> tuple[int, int]:
    """Scores, softmax in fp32, dropout and values, each its own tensor (Transformers' eager_attention_forward).

    Returns the output and the weights after dropout.
    """
    repeats = spec.heads != spec.kv_heads
    k, v = repeated(t, k, spec.heads), repeated(t, v, spec.heads)
    batch, sequence, _, _ = t.dims[q]
    keys = Axis(Dim.KEY_SEQUENCE, sequence.size)
    dims = (batch, Axis(Dim.HEADS, spec.heads), sequence, keys)
    scores = scale(t, _product(t, q, k, dims, (spec.head_first, repeats or spec.head_first)), "scaled scores")
    if spec.softcap:
        scores = scale(t, unary(t, "tanh", scale(t, scores), saves_out=True))
    if mask is not None:
        scores = add(t, scores, mask, "masked scores")
    weights = _weights(t, scores, q if spec.upcast else v, spec)
    dropped = dropout(t, weights, spec.dropout)
    t.end([weights])
    out = _product(t, dropped, v, t.dims[q], (True, repeats))
    result = copy(t, heads_first(t, out, t.dims[out]) if batch.size > 1 else out)
    t.end([k, v, dropped])
    return result, dropped


def _weights(t: Tape, scores: int, like: int, spec: Attention) -> int:
    """Softmax over the keys, in fp32 where asked for or under autocast, and cast back where the code does so."""
    dtype = FP32 if spec.upcast or t.autocast is not None else t.dtype[scores]
    soft = softmax(t, scores, dtype)
    # a chained cast leaves the name with the scores until it is done
    chained = spec.upcast and spec.back
    if not chained:
        t.end([scores])
    weights = to(t, soft, t.dtype[like]) if spec.back else soft
    if chained:
        t.end([scores])
    return weights


def _product(t: Tape, a: int, b: int, dims: Dims, contiguous: tuple[bool, bool]) -> int:
    """torch.matmul of [batch, heads, ., .] tensors; autocast's casts of its arguments live until it returns."""
    low_b = lowered(t, b)
    low_a = lowered(t, a)
    name = "values" if t.dims[a][-1].dim is Dim.KEY_SEQUENCE else "scores"
    out = matmul(t, _merged(t, low_a, contiguous[0]), _merged(t, low_b, contiguous[1]), dims, name)
    t.end([low_a, low_b])
    return out


def _merged(t: Tape, x: int, contiguous: bool = False) -> int:
    """[batch x heads] as one dim for a batched product: a copy when the batch holds more than one sequence, since
    heads lie inside tokens; repeated keys and values are contiguous already."""
    return view(t, x) if contiguous or t.dims[x][0].size == 1 else copy(t, x)

"""PyTorch's composite attention on a tape: scaled copies, scores, a softmax and values, each its own tensor.

Source: aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math (v2.4 to v2.13).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL, FP32, DType
from trainledger.facts.kernels_fused import COMPOSITE
from trainledger.facts.versions import at_least
from trainledger.ledger.aten import copy, dropout, heads_first, matmul, scale, softmax, temporary, to
from trainledger.ledger.fused import additive, widened
from trainledger.ledger.nn import lowered
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Attention, WrittenAttention


def composite(t: Tape, qkv: tuple[int, int, int], spec: Attention, mask: int | None, torch: str) -> int:
    """The result, [batch, sequence, heads, head dim], copied to token order; keys and values may be repeated before."""
    newer = at_least(torch, COMPOSITE.since)
    given = mask if mask is None or t.dtype[mask] == BOOL else lowered(t, mask)  # the last argument is cast first
    v, k, q = (lowered(t, x) for x in reversed(qkv))
    low, dims = t.dtype[q], (*t.dims[q][:-1], t.dims[v][-1])
    batch, sequence, heads, _ = dims
    added = additive(t, given, low) if given is not None and t.dtype[given] == BOOL else given
    wide = [to(t, x, FP32) for x in (q, k, v)] if newer else [q, k, v]
    scaled = scale(t, wide[0], "scaled queries")
    if mask is None and spec.causal:
        added = _causal(t, sequence.size, t.dtype[scaled])
    keys, values = (_repeated(t, x, spec) for x in wide[1:])
    across = scale(t, keys, "scaled keys")
    stretches = isinstance(spec, WrittenAttention)  # the products stretch a lone head over all
    across = widened(t, across, spec.heads) if stretches else across
    # heads lie inside tokens unless something wrote them one after the other; then a batch takes a copy
    spread = spec.heads != spec.kv_heads and not stretches
    lone = spec.kv_heads == 1 and values == wide[-1] and wide[-1] == v
    left = scaled if batch.size == 1 or spec.head_first else copy(t, scaled)
    joined = dims[1].size != t.dims[k][1].size  # with others', head by head
    middle = across if batch.size == 1 or spec.head_first or spread or joined else copy(t, across)
    scores_dims = (batch, heads, sequence, Axis(Dim.KEY_SEQUENCE, t.dims[k][1].size))
    scores = matmul(t, left, middle, scores_dims, "scores")
    t.end([across])
    weights = _weights(t, scores, newer)
    dropped = dropout(t, weights, spec.dropout)
    returned = to(t, dropped, low)
    values = widened(t, values, spec.heads) if stretches else values
    right = values if batch.size == 1 or (spread and not lone) or joined else copy(t, values)
    out = matmul(t, dropped, right, dims, "values")
    result = to(t, heads_first(t, out, dims) if batch.size > 1 else out, low)
    t.end([q, k, v, *wide, scaled, keys, values, returned, dropped, *([] if added is None else [added])])
    final = copy(t, result)
    t.end([result])
    return final


def _causal(t: Tape, size: int, dtype: DType) -> int:
    """The causal mask made at every call, as what is added to the scores."""
    square: Dims = (Axis(Dim.SEQUENCE, size), Axis(Dim.KEY_SEQUENCE, size))
    full = t.run(Prim("ones", (), (t.fresh(square, BOOL, False, "ones"),), (), (), ()))
    lower = t.run(Prim("tril", (full,), (t.fresh(square, BOOL, False, "causal mask"),), (), (), ()))
    return additive(t, lower, dtype)


def _repeated(t: Tape, x: int, spec: Attention) -> int:
    """repeat_interleave over heads: a copy; backward sums the copies."""
    if t.dims[x][-2].size == spec.heads or isinstance(spec, WrittenAttention):
        return x
    dims = (*t.dims[x][:-2], Axis(Dim.HEADS, spec.heads), t.dims[x][-1])
    out = t.fresh(dims, t.dtype[x], t.grad[x], "repeated heads")
    return t.run(Prim("repeat_interleave", (x,), (out,), (), (Step(Code.GRAD, 0),), ()))


def _weights(t: Tape, scores: int, newer: bool) -> int:
    """The softmax; newer releases then set rows that are masked whole to zero, in a second result."""
    if not newer:
        return softmax(t, scores, t.dtype[scores])
    dims = t.dims[scores]
    first = temporary(t, dims, t.dtype[scores], "softmax kernel: before masked rows are cleared")
    which = temporary(t, dims, BOOL, "softmax kernel: where it is minus infinity")
    out = t.fresh(dims, t.dtype[scores], t.grad[scores], "softmax")
    product = temporary(t, dims, t.dtype[scores], "softmax kernel: gradient times result")
    steps = (Step(Code.GRAD, 0), Step(Code.BORN, 0, product), Step(Code.DEAD, 0, product))
    return t.run(Prim("safe_softmax", (scores,), (out,), (out,) if t.grad[scores] else (), steps, (first, which)))

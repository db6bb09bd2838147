"""Attention as single classes of Transformers write it out in Python, on a tape.

Sources: transformers/models/falcon/modeling_falcon.py, FalconAttention.forward (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, DType
from trainledger.ledger import aten
from trainledger.ledger.attention import valued
from trainledger.ledger.edges import ALIBI
from trainledger.ledger.frame import Frame
from trainledger.ledger.fused import widened
from trainledger.ledger.nn import lowered
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.operations_written import NAMED
from trainledger.model.program import Attention, HighAttention, Written, WrittenAttention

LEFT = ("o", *NAMED)  # what a written attention leaves
SOURCE = "x"  # what programs call the hidden state that an attention module reads


def eager(f: Frame, spec: WrittenAttention, qkv: tuple[int, int, int], mask: int | None) -> tuple[list[int], int]:
    """What LEFT says, and the weights that the layer returns."""
    t, dtype = f.tape, f.tape.dtype[f.names[SOURCE]]
    q, k, v = qkv
    if spec.how is Written.BLOOM:
        return _bloom(f, spec, qkv, mask)
    scores = _scores(t, q, k, spec)
    if spec.how is Written.MPT:
        return _mpt(f, spec, (scores, v), mask)
    if spec.how is Written.FALCON_BIASED:
        high = aten.to(t, scores, FP32)
        logits = _scaled_in_place(t, aten.add(t, high, f.names[ALIBI], "biased scores"))
        weights = aten.dropout(t, _softmax(t, logits, mask, dtype), spec.dropout)
        return [_valued(t, weights, v, spec), scores, high, logits], weights
    scores = _scaled_in_place(t, scores)
    weights = _softmax(t, scores, mask, dtype)
    t.end([scores])
    out = _valued(t, weights, v, spec)
    return [out] * len(LEFT), weights


def _bloom(f: Frame, spec: WrittenAttention, qkv: tuple[int, int, int], mask: int | None) -> tuple[list[int], int]:
    """alibi.baddbmm of queries and keys by heads, which a batch copies; the softmax in fp32, cast back at once."""
    t = f.tape
    q, k, v = (x if t.dims[x][0].size == 1 else aten.copy(t, x) for x in qkv)
    scores = _added(t, spec, f.names[ALIBI], (q, k))
    masked = scores if mask is None else aten.add(t, scores, mask, "masked scores")
    weights = aten.dropout(t, aten.to(t, aten.softmax(t, masked, FP32), t.dtype[q]), spec.dropout)
    low_v, low_w = lowered(t, v), lowered(t, weights)
    batch, _, sequence, _ = t.dims[weights]
    dims = (batch, sequence, Axis(Dim.HEADS, spec.heads), t.dims[v][-1])
    out = aten.matmul(t, low_w, low_v, dims, "values")
    t.end([low_v, low_w])
    result = aten.copy(t, aten.heads_first(t, out, dims) if batch.size > 1 else out)
    return [result, scores, masked, weights, q, k, v], weights


def _added(t: Tape, spec: WrittenAttention, biases: int, both: tuple[int, int]) -> int:
    """biases + scale * queries keys^T: saves queries and keys; backward scales a product for each."""
    k = lowered(t, both[1])
    q = lowered(t, both[0])
    low = lowered(t, biases)
    batch, sequence, _, _ = t.dims[q]
    dims = (batch, Axis(Dim.HEADS, spec.heads), sequence, Axis(Dim.KEY_SEQUENCE, t.dims[k][1].size))
    out = t.fresh(dims, t.dtype[q], t.grad[q] or t.grad[k], "scores")
    saves = ((q,) if t.grad[k] else ()) + ((k,) if t.grad[q] else ())
    steps: list[Step] = []
    for at, value in enumerate((q, k)):
        if t.grad[value]:
            product = aten.temporary(t, t.dims[value], t.dtype[value], "gradient before it is scaled")
            steps += [Step(Code.BORN, at, product), Step(Code.GRAD, at), Step(Code.DEAD, at, product)]
    t.run(Prim("bmm", (q, k, low), (out,), saves, tuple(steps), ()))
    t.end([q, k, low])
    return out


def _mpt(f: Frame, spec: WrittenAttention, both: tuple[int, int], mask: int | None) -> tuple[list[int], int]:
    """Scaled scores and biases in fp32, filled where the mask hides."""
    t = f.tape
    scores, v = both
    every = f.setting.cast(t, f.names[ALIBI])
    biases = aten.view(t, every, (*t.dims[every][:-1], t.dims[scores][-1]))  # those of the last keys
    scores = aten.add(t, aten.scale(t, scores, "scaled scores"), biases, "biased scores")
    if mask is not None:
        out = t.fresh(t.dims[scores], t.dtype[scores], t.grad[scores], "masked scores")
        saves = (mask,) if t.grad[scores] else ()
        scores = t.run(Prim("masked_fill", (scores, mask), (out,), saves, aten.GRAD0, ()))
    weights = aten.dropout(t, aten.to(t, aten.softmax(t, scores, FP32), t.dtype[v]), spec.dropout)
    result = _valued(t, weights, v, spec)
    return [result, scores, scores, weights], weights


def _softmax(t: Tape, scores: int, mask: int | None, dtype: DType) -> int:
    """The softmax of masked scores, which it may cast."""
    masked = scores if mask is None else aten.add(t, scores, mask, "masked scores")
    soft = aten.softmax(t, masked, dtype)
    t.end([masked])
    return soft


def _scaled_in_place(t: Tape, x: int) -> int:
    """Times or divided by a Python number where it lies."""
    return t.run(Prim("mul_", (x,), (t.alias(x),), (), aten.GRAD0, ()))


def _scores(t: Tape, q: int, k: int, spec: Attention) -> int:
    batch, sequence, _, _ = t.dims[q]
    keys = Axis(Dim.KEY_SEQUENCE, t.dims[k][1].size)
    return _product(t, q, k, (batch, Axis(Dim.HEADS, spec.heads), sequence, keys), "scores")


def _valued(t: Tape, weights: int, v: int, spec: WrittenAttention) -> int:
    """Weights times values, copied to token order."""
    batch, _, sequence, _ = t.dims[weights]
    dims = (batch, sequence, Axis(Dim.HEADS, spec.heads), t.dims[v][-1])
    out = _product(t, weights, v, dims, "values")
    return aten.copy(t, aten.heads_first(t, out, dims) if batch.size > 1 else out)


def _product(t: Tape, a: int, b: int, dims: Dims, name: str) -> int:
    """torch.matmul over heads, which stretches a lone one; what lies token by token is copied for a batch."""
    low_b = lowered(t, b)
    low_a = lowered(t, a)
    heads = next(axis.size for axis in dims if axis.dim is Dim.HEADS)
    wide, single = widened(t, low_b, heads), dims[0].size == 1
    left = aten.view(t, low_a) if single or name == "values" else aten.copy(t, low_a)
    right = aten.view(t, wide) if single else aten.copy(t, wide)
    out = aten.matmul(t, left, right, dims, name)
    t.end([a, b, low_a, low_b])
    return out


def high(t: Tape, qkv: tuple[int, int, int], spec: HighAttention, mask: int | None) -> tuple[int, int]:
    """Scores of queries and keys in fp32, which autocast casts once more; the softmax cast to the values' dtype."""
    q, k = (aten.to(t, x, FP32) for x in qkv[:2])
    scores = aten.scale(t, _scores(t, q, k, spec), "scaled scores")
    if mask is not None:
        scores = aten.add(t, scores, mask, "masked scores")
    weights = aten.to(t, aten.softmax(t, scores, FP32), t.dtype[qkv[2]])
    t.end([scores])
    dropped = aten.dropout(t, weights, spec.dropout)
    t.end([weights])
    result = valued(t, (dropped, qkv[2]), spec, repeats=False)
    t.end([dropped])
    return result, dropped

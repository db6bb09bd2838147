"""Attention on a tape: written out in Python, or handed to a kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.facts.kernels_attention import Kernel
from trainledger.ledger.aten import add, copy, dropout, heads_first, matmul, scale, softmax, to, unary, view
from trainledger.ledger.composite import composite
from trainledger.ledger.fused import Site, fused
from trainledger.ledger.nn import lowered
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Attention


def _heads(dims: Dims, heads: int) -> Dims:
    """[batch, heads, sequence, head_dim] as the elements lie: dims of q, k or v with another number of heads."""
    return (*dims[:-2], Axis(Dim.HEADS, heads), dims[-1])


def repeated(t: Tape, x: int, heads: int) -> int:
    """Keys or values repeated to the number of query heads: a copy of an expanded view, the view itself when there is
    but one head; backward sums the copies."""
    dims = _heads(t.dims[x], heads)
    if dims[-2].size == t.dims[x][-2].size:
        return x
    if t.dims[x][-2].size == 1:
        return t.run(Prim("expand", (x,), (t.alias(x, dims),), (), (Step(Code.GRAD, 0),), ()))
    out = t.fresh(dims, t.dtype[x], t.grad[x], "repeated heads")
    return t.run(Prim("expand, clone", (x,), (out,), (), (Step(Code.GRAD, 0),), ()))


@dataclass(frozen=True, slots=True)
class Call:
    """How a kernel is called: its mask, where it runs, whether keys and values are repeated before, and whether all
    three are copied head by head."""

    mask: int | None
    site: Site
    repeats: bool
    dense: bool = False


def handed(t: Tape, qkv: tuple[int, int, int], spec: Attention, call: Call) -> int:
    """Attention by one kernel; keys and values are repeated first where the kernel is not handed grouped heads."""
    q, k, v = qkv
    if call.repeats:
        k, v = repeated(t, k, spec.heads), repeated(t, v, spec.heads)
    if call.dense:
        q, k, v = _dense(t, (q, k, v), spec, call.repeats)
        spec = replace(spec, head_first=True)
    if call.site.kernel is Kernel.MATH:
        out = composite(t, (q, k, v), spec, call.mask, call.site.torch)
    else:
        out = fused(t, (q, k, v), spec, call.mask, call.site)
    t.end([made for made, given in zip((q, k, v), qkv, strict=True) if made != given])
    return out


def _dense(t: Tape, qkv: tuple[int, int, int], spec: Attention, repeats: bool) -> tuple[int, int, int]:
    """Queries, keys and values as they lie head by head: copies of those that do not."""
    q, k, v = qkv
    q = q if spec.head_first or spec.heads == 1 else copy(t, q)
    if repeats or spec.kv_heads == 1:
        return q, k, v
    return q, k if spec.head_first else copy(t, k), copy(t, v)


def eager(
    t: Tape, qkv: tuple[int, int, int], spec: Attention, mask: int | None, named: bool = False
) -> tuple[int, int]:
    """Scores, softmax in fp32, dropout and values, each its own tensor (Transformers' eager_attention_forward).

    `named`: the scores have a name of their own until all is done. Returns the output and the weights after dropout.
    """
    repeats = 1 < spec.kv_heads < spec.heads
    q, k, v = qkv[0], repeated(t, qkv[1], spec.heads), repeated(t, qkv[2], spec.heads)
    scores = scored(t, (q, k), spec, repeats)
    if spec.softcap:
        scores = scale(t, unary(t, "tanh", scale(t, scores), saves_out=True))
    if mask is not None:
        scores = add(t, scores, mask, "masked scores")
    weights = _weights(t, scores, q if spec.upcast else v, spec)
    dropped = dropout(t, weights, spec.dropout)
    t.end([weights])
    result = valued(t, (dropped, v), spec, repeats)
    t.end([k, v, dropped, *[scores] * named])
    return result, dropped


def scored(t: Tape, both: tuple[int, int], spec: Attention, repeats: bool) -> int:
    """Queries times keys, scaled; `repeats`: keys were repeated, head by head."""
    q, k = both
    batch, sequence, _, _ = t.dims[q]
    keys = Axis(Dim.KEY_SEQUENCE, t.dims[k][1].size)
    dims = (batch, Axis(Dim.HEADS, spec.heads), sequence, keys)
    lone = 1 == spec.kv_heads < spec.heads  # seen as many, so that a batch takes a copy
    laid = repeats or keys.size != sequence.size or (spec.head_first and not lone) or _cast_dense(t, k, spec)
    return scale(t, _product(t, q, k, dims, (spec.head_first, laid)), "scaled scores")


def valued(t: Tape, both: tuple[int, int], spec: Attention, repeats: bool) -> int:
    """Weights times values, copied to token order."""
    weights, v = both
    batch, _, sequence, _ = t.dims[weights]
    dims = (batch, sequence, Axis(Dim.HEADS, spec.heads), t.dims[v][-1])
    joined = t.dims[v][1].size != sequence.size  # with others', head by head
    out = _product(t, weights, v, dims, (True, repeats or joined or _cast_dense(t, v, spec)))
    return copy(t, heads_first(t, out, t.dims[out]) if batch.size > 1 else out)


def _cast_dense(t: Tape, x: int, spec: Attention) -> bool:
    """Whether autocast casts a lone head seen as many: the cast writes every head out, one after the other."""
    return 1 == spec.kv_heads < spec.heads and t.autocast is not None and t.dtype[x] == FP32


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

"""Transformer Engine's DotProductAttention on a tape: cuDNN's, FlashAttention, or written out.

Source: transformer_engine/pytorch/attention/dot_product_attention/{backends,utils,softmax}.py (2.5 to 2.17). Tensors
are [sequence, batch, heads, head dim] as they lie.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.base.sources import Basis
from trainledger.facts.dtypes import BOOL, FP32, INT64
from trainledger.facts.kernels_fused import FLASH
from trainledger.facts.transformer_engine import CUDNN, PACKED, SOFTMAX
from trainledger.ledger import aten, attention, rules_te_context
from trainledger.ledger.frame import Frame
from trainledger.ledger.fused import cudnn_workspace
from trainledger.ledger.mega import Backend, Engine
from trainledger.ledger.mega_router import mega_of
from trainledger.ledger.tape import EXTERNAL, Code, Prim, Step, Tape
from trainledger.lines.kernel_work import up

Heads = tuple[int, int, int]  # queries, keys, values


def core(f: Frame, dropout: float, qkv: Heads, dims: Dims) -> int:
    """Scores, softmax and values; returns one row of all heads for each token."""
    t, engine = f.tape, mega_of(f).engine
    assert engine is not None
    chance = dropout if f.setting.training else 0
    rows = (*t.dims[qkv[0]][:-2], *dims)
    made = [*_separate(t, qkv)] if _packed(t, qkv) is None or engine.ranks > 1 else list(qkv)
    q, k, v = made
    if engine.backend is Backend.UNFUSED:
        out = unfused(f, (q, k, v), chance)
    elif engine.backend is Backend.FLASH:
        out = _flash(f, engine, (q, k, v))
    elif engine.ranks > 1:
        out = rules_te_context.exchanged(f, engine, (q, k, v))
    else:
        out = _cudnn(f, engine, (q, k, v))
    t.end(made)
    return aten.view(t, out, rows)


def _packed(t: Tape, qkv: Heads) -> int | None:
    """The projection's result that queries, keys and values are parts of, where nothing was done to them since and
    there are as many heads of each."""
    store = t.store[qkv[0]]
    if store == EXTERNAL or any(t.store[one] != store for one in qkv):
        return None
    split = next(prim for prim in reversed(t.prims) if prim.outs == qkv)
    whole = split.ins[0]
    return whole if elements(t.dims[whole]) == PACKED * elements(t.dims[qkv[0]]) else None


def _separate(t: Tape, qkv: Heads) -> Heads:
    """Each contiguous: a copy where it is a part of a larger tensor."""
    q, k, v = (whole_or_copy(t, one) for one in qkv)
    return q, k, v


def whole_or_copy(t: Tape, x: int) -> int:
    """The value itself, or a copy where it is a part of a larger tensor."""
    store = t.store[x]
    whole = store == EXTERNAL or elements(t.dims[x]) == elements(t.storages[store].dims)
    return x if whole else aten.copy(t, x)


def rows_of(t: Tape, q: int) -> Dims:
    """One entry for each head of each token."""
    return t.dims[q][:-1]


def _cudnn(f: Frame, engine: Engine, qkv: Heads) -> int:
    """Reads the projection's result as it lies, where it may, and then leaves one gradient of it."""
    t, q = f.tape, qkv[0]
    packed = _packed(t, qkv)
    ins = qkv if packed is None else (packed,)
    out = t.fresh((*t.dims[q][:-1], t.dims[qkv[-1]][-1]), t.dtype[q], True, "output")
    sums = t.fresh(rows_of(t, q), FP32, False, "logsumexp")
    state = t.fresh((Axis(Dim.ELEMENTS, 2),), INT64, False, "random state")
    grads = tuple(Step(Code.GRAD, at) for at in range(len(ins)))
    work = cudnn_work(f, engine, t.dims[q])
    steps = (*grads, *(Step(Code.BORN, 0, one) for one in work), *(Step(Code.DEAD, 0, one) for one in work))
    t.run(Prim("cudnn attention", ins, (out, sums, state), (*ins, out, sums, state), steps, ()))
    return out


def cudnn_work(f: Frame, engine: Engine, dims: Dims) -> list[int]:
    """The workspace of cuDNN's backward as its frontend asks for it; what its engines ask for besides is not known."""
    t = f.tape
    if engine.deterministic and f.setting.architecture in CUDNN.architectures:
        tile = Axis(Dim.KEY_SEQUENCE, up(_size(dims, Dim.SEQUENCE), CUDNN.tile))
        square = (dims[0], Axis(Dim.SEQUENCE, tile.size), dims[-2], tile)
        return [
            aten.temporary(t, dims[:-1], FP32, "kernel: softmax sums", Basis.ASSUMED),
            aten.temporary(t, square, f.setting.weights, "kernel: gradient of probabilities", Basis.ASSUMED),
        ]
    return [cudnn_workspace(t, dims)]


def _size(dims: Dims, dim: Dim) -> int:
    return next(axis.size for axis in dims if axis.dim is dim)


def _flash(f: Frame, engine: Engine, qkv: Heads) -> int:
    """FlashAttention reads each sequence's tokens together: copies, and one of the result, where there are several."""
    t = f.tape
    several = f.setting.batch > 1
    q, k, v = (aten.copy(t, one) if several else whole_or_copy(t, one) for one in qkv)
    if engine.ranks > 1:
        out = rules_te_context.exchanged(f, engine, (q, k, v))
    else:
        out = t.fresh(t.dims[q], t.dtype[q], True, "output")
        sums = t.fresh(rows_of(t, q), FP32, False, "logsumexp")
        state = t.fresh((Axis(Dim.ELEMENTS, 2),), INT64, False, "random state")
        work = flash_work(f, engine, (q, k, v))
        grads = tuple(Step(Code.GRAD, at) for at in range(len(qkv)))
        steps = (*grads, *(Step(Code.BORN, 0, one) for one in work), *(Step(Code.DEAD, 0, one) for one in work))
        saves = (q, k, v, out, sums, state)
        t.run(Prim("flash attention", (q, k, v), (out, sums, state), saves, steps, ()))
    made = aten.copy(t, out) if several else out
    t.end([q, k, v, out])
    return made


def flash_work(f: Frame, engine: Engine, qkv: Heads) -> list[int]:
    """What FlashAttention's backward makes: a deterministic one sums queries' gradients once for each of the blocks
    that run at a time."""
    t, (q, k, _) = f.tape, qkv
    dims = t.dims[q]
    batch, heads, head = _size(dims, Dim.BATCH), dims[-2], dims[-1]
    rows = Axis(Dim.SEQUENCE, up(_size(dims, Dim.SEQUENCE), FLASH.rows))
    step = FLASH.wide_step if head.size > FLASH.wide else FLASH.step
    parts = max(-(-t.device.count // (batch * heads.size)), 1) if engine.deterministic else 1
    front = (Axis(Dim.ELEMENTS, parts), Axis(Dim.BATCH, batch), rows, heads)
    found = [
        aten.temporary(t, front[1:], FP32, "kernel: softmax_d"),
        aten.temporary(t, (*front, Axis(Dim.HEAD_DIM, up(head.size, step))), FP32, "kernel: sums of query gradients"),
    ]
    if t.dims[k][-2].size != heads.size:
        found += [aten.temporary(t, dims, t.dtype[q], f"kernel: {one} gradients by query head") for one in ("k", "v")]
    return found


def unfused(f: Frame, qkv: Heads, chance: float) -> int:
    """Products over batch and heads as one dim, a softmax kernel that reads a mask of the sequence, dropout."""
    t = f.tape
    q, k, v = qkv
    heads = t.dims[q][-2].size
    if t.dims[k][-2].size != heads:
        k, v = attention.repeated(t, k, heads), attention.repeated(t, v, heads)
    front = t.dims[q][:-2]
    keys = Axis(Dim.KEY_SEQUENCE, _size(front, Dim.SEQUENCE))
    square = (*front, t.dims[q][-2], keys)
    mask = t.fresh((Axis(Dim.SEQUENCE, keys.size), keys), BOOL, False, "causal mask")
    t.run(Prim("mask", (), (mask,), (), (), ()))
    empty = t.fresh(square, t.dtype[q], False, "empty scores")
    t.run(Prim("empty", (), (empty,), (), (), ()))
    scores = aten.matmul(t, q, k, square, "scores")
    t.end([empty])
    probs = _softmax(f, scores)
    dropped = aten.dropout(t, probs, chance)
    out = aten.matmul(t, dropped, v, (*t.dims[q][:-1], t.dims[v][-1]), "values")
    made = aten.copy(t, out)
    t.end([scores, mask, probs, dropped, out, k, v])
    return made


def _softmax(f: Frame, scores: int) -> int:
    """A kernel for sizes that it takes, else PyTorch's operations in fp32."""
    t, row = f.tape, SOFTMAX
    keys, heads = t.dims[scores][-1].size, f.setting.batch * t.dims[scores][-2].size
    if row.shortest < keys < row.longest and not keys % row.multiple and not heads % row.heads:
        out = t.fresh(t.dims[scores], t.dtype[scores], True, "softmax")
        return t.run(Prim("scaled masked softmax", (scores,), (out,), (out,), (Step(Code.GRAD, 0),), ()))
    high = aten.to(t, scores, FP32)
    masked = aten.scale(t, high, "masked scores")
    t.end([high])
    soft = aten.softmax(t, masked, FP32)
    t.end([masked])
    low = aten.to(t, soft, t.dtype[scores])
    if low != soft:
        t.end([soft])
    return low

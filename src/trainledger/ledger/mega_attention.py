"""Megatron-Core's attention between its projections: rotary embedding, scores and values.

Sources: megatron/core/models/common/embeddings/rope_utils.py; transformer/dot_product_attention.py;
fusions/fused_softmax.py (0.19.2).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL, FP32
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.megatron import SOFTMAX
from trainledger.ledger import aten, attention
from trainledger.ledger.frame import Frame
from trainledger.ledger.fused import Site
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.lines.kernel_choice import Asked, choose
from trainledger.model.program import Attention

WAVES = ("cos", "sin")


def angles(f: Frame, width: int) -> Dims:
    """Dims of the angles of every position, which all layers read."""
    single = Axis(Dim.ONE, 1)
    return (single, Axis(Dim.SEQUENCE, f.setting.sequence), single, Axis(Dim.ROPE_DIM, width))


def turned(f: Frame, x: int) -> int:
    """x cos + rotate_half(x) sin, with cosines and sines made for each call."""
    t = f.tape
    assert f.software.mega is not None
    dims = t.dims[x]
    if f.software.mega.fusions.rope:
        out = t.fresh(dims, t.dtype[x], True, "rotated")
        return t.run(Prim("fused rope", (x,), (out,), (), (Step(Code.GRAD, 0),), ()))
    table = t.outside(angles(f, dims[-1].size), FP32, False)
    half = (*dims[:-1], Axis(Dim.ROPE_DIM, dims[-1].size // len(WAVES)))
    rest = aten.part(t, x, (*dims[:-1], Axis(Dim.ROPE_DIM, 0)))
    waves = []
    for wave in WAVES:
        raw = aten.unary(t, wave, table)
        scaled = aten.scale(t, raw, f"{wave} scaled")
        t.end([raw])
        waves.append(aten.to(t, scaled, t.dtype[x]))
        t.end([scaled])
    straight = aten.mul(t, x, waves[0], "times cos")
    first, second = aten.chunk(t, x, [half, half])
    negative = aten.unary(t, "neg", second)
    swapped = aten.cat(t, [negative, first], dims, "rotated half")
    t.end([first, second, negative])
    crossed = aten.mul(t, swapped, waves[1], "times sin")
    t.end([swapped])
    total = aten.add(t, straight, crossed, "sum")
    t.end([straight, crossed])
    out = aten.cat(t, [total, rest], dims, "rotated")
    t.end([x, total, rest, *waves])
    return out


def core(f: Frame, dropout: float, qkv: tuple[int, int, int], dims: Dims) -> int:
    """Scores, softmax and values; returns one row of all heads for each token."""
    t, s = f.tape, f.setting
    q, k, _ = qkv
    heads, groups, width = t.dims[q][-2].size, t.dims[k][-2].size, t.dims[q][-1].size
    spec = Attention(heads, groups, width, dropout=dropout)
    if s.attention == Kernel.EAGER:
        return _written(f, spec, qkv, dims)
    chance = dropout if s.training else 0
    choice = choose(
        Asked(
            s.attention, s.weights, width, False, chance, heads != groups, s.torch, s.architecture, s.fallback_kernels
        )
    )
    call = attention.Call(None, Site(choice.kernel, s.torch, s.architecture), choice.repeats)
    out = attention.handed(t, qkv, spec, call)
    return aten.view(t, out, (*t.dims[q][:-2], *dims))


def _written(f: Frame, spec: Attention, qkv: tuple[int, int, int], dims: Dims) -> int:
    """DotProductAttention: products through a buffer that all layers share, softmax, dropout, values, a copy."""
    t = f.tape
    q, k, v = qkv
    if spec.heads // spec.kv_heads > 1:
        k, v = attention.repeated(t, k, spec.heads), attention.repeated(t, v, spec.heads)
    front = t.dims[q][:-2]
    keys = Axis(Dim.KEY_SEQUENCE, next(one.size for one in front if one.dim is Dim.SEQUENCE))
    square = (*front, Axis(Dim.HEADS, spec.heads), keys)
    scores = aten.matmul(t, q, k, square, "scores")
    masked, probs = _softmax(f, scores)
    dropped = aten.dropout(t, probs, spec.dropout if f.setting.training else 0)
    if dropped != probs:
        t.end([probs])
    out = aten.matmul(t, dropped, v, (*t.dims[q][:-1], t.dims[v][-1]), "values")
    made = aten.copy(t, out, (*front, *dims))
    t.end([scores, masked, dropped, out, k, v])  # names of the function that runs them all
    return made


def _softmax(f: Frame, scores: int) -> tuple[int, int]:
    """The scores as they are masked, and their softmax: in one kernel, whose backward writes over the gradient, or one
    after the other."""
    t, mega, row = f.tape, f.software.mega, SOFTMAX
    assert mega is not None
    dtype, keys = t.dtype[scores], t.dims[scores][-1].size
    if mega.fusions.softmax and dtype != FP32 and row.shortest < keys <= row.longest and not keys % row.multiple:
        out = t.fresh(t.dims[scores], dtype, True, "softmax")
        return scores, t.run(Prim("fused softmax", (scores,), (out,), (out,), (Step(Code.PASS, 0),), ()))
    masked = _masked(t, scores)
    probs = aten.softmax(t, masked, FP32 if mega.wide_softmax else dtype)
    if mega.wide_softmax:
        high = probs
        probs = aten.to(t, high, dtype)
        t.end([high])
    return masked, probs


def _masked(t: Tape, scores: int) -> int:
    """Scores of later keys set to a low number, in place, by a mask that is made of ones for each layer and kept."""
    square = t.dims[scores][-1:]
    dims = (Axis(Dim.SEQUENCE, square[0].size), *square)
    ones = t.fresh(dims, FP32, False, "ones")
    upper = t.fresh(dims, FP32, False, "ones above the diagonal")
    t.run(Prim("ones", (), (ones,), (), (), ()))
    t.run(Prim("triu", (ones,), (upper,), (), (), ()))
    t.end([ones])
    mask = t.fresh(dims, BOOL, False, "causal mask")
    t.run(Prim("to", (upper,), (mask,), (), (), ()))
    t.end([upper])
    out = t.alias(scores)
    t.run(Prim("masked_fill_", (scores, mask), (out,), (mask,), (Step(Code.GRAD, 0),), ()))
    t.end([mask])
    return out

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
SCORES = "scores"


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
    whole = t.alias(x)  # the part that turns, whose gradient joins that of the rest
    t.run(Prim("alias", (x,), (whole,), (), (Step(Code.PASS, 0),), ()))
    rest = aten.part(t, x, (*dims[:-1], Axis(Dim.ROPE_DIM, 0)))
    waves = []
    for wave in WAVES:
        raw = aten.unary(t, wave, table)
        scaled = aten.scale(t, raw, f"{wave} scaled")
        t.end([raw])
        waves.append(aten.to(t, scaled, t.dtype[x]))
        t.end([scaled])
    straight = aten.mul(t, whole, waves[0], "times cos")
    first, second = aten.chunk(t, whole, [half, half])
    negative = aten.unary(t, "neg", second)
    swapped = aten.cat(t, [negative, first], dims, "rotated half")
    t.end([first, second, negative])
    crossed = aten.mul(t, swapped, waves[1], "times sin")
    t.end([swapped])
    total = aten.add(t, straight, crossed, "sum")
    t.end([straight, crossed])
    out = aten.cat(t, [total, rest], dims, "rotated")
    t.end([x, whole, total, rest, *waves])
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
    q = _leaf(f, q)
    grouped = spec.heads // spec.kv_heads > 1
    if grouped:
        k, v = (attention.repeated(t, _leaf(f, one), spec.heads) for one in (k, v))
    else:
        k = _leaf(f, k)
    front = t.dims[q][:-2]
    keys = Axis(Dim.KEY_SEQUENCE, next(one.size for one in front if one.dim is Dim.SEQUENCE))
    square = (*front, Axis(Dim.HEADS, spec.heads), keys)
    scores = _product(t, q, k, square)
    probs = _softmax(f, scores)
    dropped = aten.dropout(t, probs, spec.dropout if f.setting.training else 0)
    if dropped != probs:
        t.end([probs])
    v = v if grouped else _leaf(f, v)
    out = aten.matmul(t, dropped, v, (*t.dims[q][:-1], t.dims[v][-1]), "values")
    made = aten.copy(t, out, (*front, *dims))
    t.end([out])
    t.end([scores, dropped, k, v])  # names of the function that runs them all
    return made


def _leaf(f: Frame, x: int) -> int:
    """An input of attention. Where it runs again by itself it is a leaf of a graph of its own: products leave gradients
    whose dims lie in another order, which are copied as they are kept (accumulate_grad.h)."""
    t, mega = f.tape, f.software.mega
    assert mega is not None
    if not mega.scores.apart:
        return x
    out = t.alias(x)
    t.run(Prim("leaf", (x,), (out,), (), (Step(Code.GRAD, 0),), ()))
    return out


def _product(t: Tape, q: int, k: int, dims: Dims) -> int:
    """baddbmm into the shared buffer, times the scale: in backward each product is made, and its multiple from it."""
    out = t.fresh(dims, t.dtype[q], True, SCORES)
    steps: list[Step] = []
    for at, one in enumerate((q, k)):
        plain = aten.temporary(t, t.dims[one], t.dtype[one], "gradient before its scale")
        steps += Step(Code.BORN, 0, plain), Step(Code.GRAD, at), Step(Code.DEAD, 0, plain)
    return t.run(Prim("baddbmm", (q, k), (out,), (q, k), tuple(steps), ()))


def _softmax(f: Frame, scores: int) -> int:
    """The scores' softmax: in one kernel, whose backward writes over the gradient, or step by step, on a copy where it
    runs in fp32, and on their product with the layer's number where they were divided by it."""
    t, mega = f.tape, f.software.mega
    assert mega is not None
    if mega.fusions.softmax and _kernel(f, scores):
        out = t.fresh(t.dims[scores], t.dtype[scores], True, "softmax")
        return t.run(Prim("fused softmax", (scores,), (out,), (out,), (Step(Code.PASS, 0),), ()))
    read = aten.to(t, scores, FP32) if mega.scores.wide else scores
    if mega.scores.layered:
        cast, read = read, aten.scale(t, read, "scores by the layer's number")
        t.end([cast] if cast != scores else [])
    masked, mask = _masked(f, read, read == scores)
    probs = aten.softmax(t, masked, t.dtype[masked])
    low = aten.to(t, probs, t.dtype[scores])
    t.end([mask, *({read, masked} - {scores}), *({probs} - {low})])
    return low


def _kernel(f: Frame, scores: int) -> bool:
    """Whether the kernel that masks, scales and takes the softmax takes these scores."""
    t, row = f.tape, SOFTMAX
    keys, heads = t.dims[scores][-1].size, f.setting.batch * t.dims[scores][-2].size
    at_once = row.at_once if keys > row.few else row.at_once_of_few
    sizes = row.shortest < keys <= row.longest and not keys % row.multiple and not heads % at_once
    return t.dtype[scores] != FP32 and sizes


def _masked(f: Frame, scores: int, viewed: bool) -> tuple[int, int]:
    """Scores of later keys set to a low number, in place, and the mask that says which: it came with the batch, or is
    made of ones for each layer and kept. `viewed`: the product itself is written, through a view, so that autograd
    copies its gradient for the view, and that of the view for the function (torch/csrc/autograd/variable.cpp,
    functions/tensor.cpp: CopySlices)."""
    t, mega = f.tape, f.software.mega
    assert mega is not None
    square = t.dims[scores][-1:]
    dims = (Axis(Dim.SEQUENCE, square[0].size), *square)
    mask = t.outside(dims, BOOL, False) if mega.scores.masked else _causal(t, dims)
    out = t.alias(scores)
    if not viewed:
        return t.run(Prim("masked_fill_", (scores, mask), (out,), (mask,), (Step(Code.GRAD, 0),), ())), mask
    names = ("gradient of the view", "masked gradient of the view")
    inner = [aten.temporary(t, t.dims[scores], t.dtype[scores], name) for name in names]
    steps = (Step(Code.GRAD, 0), *(Step(code, 0, one) for code in (Code.BORN, Code.DEAD) for one in inner))
    t.run(Prim("masked_fill_ of a view", (scores, mask), (out,), (mask,), steps, ()))
    seen = t.alias(out)
    t.run(Prim("as_strided", (out,), (seen,), (), (Step(Code.GRAD, 0),), ()))
    t.end([out])
    return seen, mask


def _causal(t: Tape, dims: Dims) -> int:
    """The mask of one layer."""
    ones = t.fresh(dims, FP32, False, "ones")
    upper = t.fresh(dims, FP32, False, "ones above the diagonal")
    t.run(Prim("ones", (), (ones,), (), (), ()))
    t.run(Prim("triu", (ones,), (upper,), (), (), ()))
    t.end([ones])
    mask = t.fresh(dims, BOOL, False, "causal mask")
    t.run(Prim("to", (upper,), (mask,), (), (), ()))
    t.end([upper])
    return mask

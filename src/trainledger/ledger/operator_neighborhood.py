"""Neighborhood attention in published benchmarks: a whole attention layer, by Liger's kernels or by hand.

Sources: liger_kernel/ops/fused_neighborhood_attention.py (0.6.0 to 0.8.2) and its benchmark's baseline.
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL, FP32
from trainledger.ledger import aten, nn
from trainledger.ledger.operator_tools import entry, parameter
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead

Triple = tuple[int, int, int]


def neighborhood_attention(run: OperatorRun) -> Written:
    """Projections, attention within a window (which costs what full attention does), and a projection back."""
    t = run.tape()
    hidden = Axis(Dim.HIDDEN, run.size("hidden_size"))
    heads = Axis(Dim.HEADS, run.size("num_heads"))
    batch, length = Axis(Dim.BATCH, run.size("batch_size")), Axis(Dim.SEQUENCE, run.size("seq_len"))
    x = entry(t, "x", (batch, length, hidden), run.element)
    layers = [_layer(t, name, hidden, run) for name in ("q_proj", "k_proj", "v_proj", "out_proj")]
    by_head: Dims = (batch, heads, length, Axis(Dim.HEAD_DIM, hidden.size // heads.size))
    parts = [aten.heads_first(t, nn.linear(t, x, t.dims[x], *layer), by_head) for layer in layers[:-1]]
    attend = _by_kernels if run.implementation == "liger" else _by_hand
    mixed, names = attend(t, (parts[0], parts[1], parts[-1]))
    laid = aten.copy(t, _token_by_token(t, mixed, x))
    y = nn.linear(t, laid, t.dims[x], *layers[-1])
    t.end([*parts, *names, laid])
    weights = tuple(value for layer in layers for value in layer)
    return Written(t, (x,), weights, (y,), products=True)


def _layer(t: Tape, name: str, hidden: Axis, run: OperatorRun) -> tuple[int, ...]:
    weight = parameter(t, f"{name}.weight", (Axis(Dim.ROWS, hidden.size), hidden), run.element)
    return (weight, parameter(t, f"{name}.bias", (hidden,), run.element)) if run.shape["bias"] else (weight,)


def _token_by_token(t: Tape, mixed: int, x: int) -> int:
    """The heads' results seen token by token; their gradient is a view of the incoming one."""
    out = t.alias(mixed, t.dims[x])
    return t.run(Prim("transpose", (mixed,), (out,), (), (Step(Code.SEEN, 0),), ()))


def _by_hand(t: Tape, qkv: Triple) -> tuple[int, tuple[int, ...]]:
    """Scores, a mask of truth values, softmax and values, each a tensor of its own."""
    q, k, v = qkv
    batch, heads, length, _ = t.dims[q]
    square = (batch, heads, length, Axis(Dim.KEY_SEQUENCE, length.size))
    pair = [_merged(t, one) for one in (q, k)]
    scores = aten.matmul(t, pair[0], pair[1], square, "scores")
    t.end(pair)
    scaled = aten.scale(t, scores)
    mask = t.run(Prim("zeros", (), (t.fresh(square[-2:], BOOL, False, "mask"),), (), (), ()))
    opposite = t.run(Prim("not", (mask,), (t.fresh(square[-2:], BOOL, False, "not the mask"),), (), (), ()))
    masked = t.fresh(square, t.dtype[q], True, "masked scores")
    t.run(Prim("masked_fill", (scaled, opposite), (masked,), (opposite,), (Step(Code.GRAD, 0),), ()))
    t.end([scaled])
    weights = aten.softmax(t, masked, t.dtype[q])
    values = _merged(t, v)
    mixed = aten.matmul(t, weights, values, t.dims[q], "values")
    t.end([values])
    return mixed, (mask, masked, weights)


def _merged(t: Tape, x: int) -> int:
    """Batch and heads as one dim for a batched product: a copy where there are several of both."""
    return aten.copy(t, x) if t.dims[x][0].size > 1 else aten.view(t, x)


def _by_kernels(t: Tape, qkv: Triple) -> tuple[int, tuple[int, ...]]:
    """One function: contiguous copies of its inputs and the weights are saved; backward makes all gradients first."""
    dtype, dims = t.dtype[qkv[0]], t.dims[qkv[0]]
    batch, heads, length, _ = dims
    square = (batch, heads, length, Axis(Dim.KEY_SEQUENCE, length.size))
    saved = [t.fresh(dims, dtype, False, f"contiguous {name}") for name in ("queries", "keys", "values")]
    t.run(Prim("contiguous", qkv, tuple(saved), (), (), ()))
    out, weights = t.fresh(dims, dtype, True, "output"), t.fresh(square, dtype, False, "weights")
    scores = aten.temporary(t, square, dtype, "scores")
    mask = aten.temporary(t, square[-2:], FP32, "mask")
    given = aten.temporary(t, dims, dtype, "contiguous gradient")
    inside = [aten.temporary(t, square, dtype, f"gradient of the {name}") for name in ("weights", "scores")]
    made = tuple(Step(Code.GRAD, at) for at in range(len(qkv)))
    steps = (*born(given), *made, *born(*inside), *dead(given, *inside))
    saves = (*saved, weights)
    t.run(Prim("neighborhood attention", (*qkv, *saved), (out, weights), saves, steps, (scores, mask)))
    t.end([*saved, weights])
    return out, ()


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("fused_neighborhood_attention", "liger"): neighborhood_attention,
    ("fused_neighborhood_attention", "torch"): neighborhood_attention,
}

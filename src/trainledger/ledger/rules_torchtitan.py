"""torchtitan's own modules on a tape: torch.nn.RMSNorm by release of PyTorch, and rotary embeddings.

Sources: aten/src/ATen/native/layer_norm.cpp, rms_norm_symint (v2.4 to v2.13); torchtitan/models/llama/model.py and
experiments/qwen3/model/model.py, apply_rotary_emb (2024-03 to 2025-09); models/gpt_oss/model.py (1690e0aea).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.facts.kernels import NATIVE_NORM
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.tape import Code, Prim, Step, Tape

Pair = tuple[int, int]


def norm(t: Tape, torch: str, x: int, weight: int) -> int:
    """One kernel that keeps its input and an fp32 number of each row; before, written out of primitives in fp32."""
    if not at_least(torch, NATIVE_NORM.fused):
        return _composite(t, at_least(torch, NATIVE_NORM.late), x, weight)
    rows = (*t.dims[x][:-1], Axis(Dim.ONE, 1))
    grad = t.grad[x] or t.grad[weight]
    out = t.fresh(t.dims[x], t.dtype[x], grad, "output")
    inverse = t.fresh(rows, FP32, False, "inverse deviation")
    saves = (x, weight, inverse) if grad else ()
    return t.run(Prim("rms_norm", (x, weight), (out, inverse), saves, (Step(Code.GRAD, 0), Step(Code.GRAD, 1)), ()))


def _composite(t: Tape, late: bool, x: int, weight: int) -> int:
    """`late`: cast back after the weight, else before."""
    high = aten.to(t, x, FP32)
    inverse = aten.rsqrt(t, aten.shift(t, aten.mean(t, aten.square(t, high))))
    normal = aten.mul(t, high, inverse, "normalised")
    if late:
        return aten.to(t, aten.mul(t, normal, weight), t.dtype[x])
    return aten.mul(t, aten.to(t, normal, t.dtype[x]), weight)


def complex_rope(t: Tape, wholes: Pair, table: int) -> list[int]:
    """Queries and keys in fp32, seen as complex numbers, times the table's, and cast back; the table needs no gradient,
    so that the product keeps nothing."""
    high = [aten.to(t, x, FP32) for x in wholes]
    made = [aten.mul(t, x, table, "rotated") for x in high]
    out = [aten.to(t, turned, t.dtype[x]) for turned, x in zip(made, wholes, strict=True)]
    t.end([*high, *made])
    return out


def keys(t: Tape, own: int, shared: int, dims: Dims) -> int:
    """Keys of every head: its own part beside the part that all heads share, which backward sums over the heads."""
    wide = t.run(Prim("expand", (shared,), (t.alias(shared, (*dims[:-1], t.dims[shared][-1])),), (), aten.GRAD0, ()))
    return aten.cat(t, [own, wide], dims, "keys")


def sunk(t: Tape, out: int, sinks: int) -> int:
    """Attention's result times the share that its head's sink leaves: sigmoid of the logsumexp less the sink."""
    made = next(prim for prim in reversed(t.prims) if out in prim.outs)
    lse = made.outs[made.outs.index(out) + 1]
    t.grad[lse] = t.grad[out] or t.grad[sinks]
    less = aten.sub(t, lse, sinks)
    share = aten.unary(t, "sigmoid", less, saves_out=True)
    t.end([less])
    return aten.mul(
        t, out, aten.view(t, aten.to(t, share, t.dtype[out]), (*t.dims[out][:-1], Axis(Dim.ONE, 1))), "scaled"
    )

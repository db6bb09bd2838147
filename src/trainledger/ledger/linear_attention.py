"""Linear attention by the gated delta rule on a tape, around the rule itself: what Transformers runs in Python.

Sources: transformers (5.24.0) models/{qwen3_next,qwen3_5}/modeling_*.py: *GatedDeltaNet.forward, causal_conv1d_fn,
*RMSNormGated; torch (v2.13) tools/autograd/derivatives.yaml: convolution, softplus.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from trainledger.base.dims import Axis
from trainledger.facts.dtypes import FP32
from trainledger.facts.linear_attention import CONVOLUTION, REPEATS, RULE, Kernels
from trainledger.facts.versions import at_least
from trainledger.ledger import aten, delta_kernels, delta_rule, nn
from trainledger.ledger.activations import activation
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.operations_linear import CausalConv, DeltaRule, GatedNorm, LinearHeads, Mixed, Transposed
from trainledger.model.program import ActKind

Linear: TypeAlias = Mixed | Transposed | CausalConv | DeltaRule | GatedNorm


def apply(f: Frame, spec: Linear, ins: list[int]) -> list[int]:
    """The values that the operation leaves."""
    t = f.tape
    match spec:
        case Mixed(heads):
            return _mixed(f, heads, ins[0], ins[1])
        case Transposed(gates):
            # backward, rows of several sequences are no matrix as they lie, and are copied; kernels leave them by token
            plain = t.dims[ins[0]][0].size == 1 or installed(f, RULE if gates else CONVOLUTION)
            return [aten.view(t, ins[0]) if plain else aten.heads_first(t, ins[0], t.dims[ins[0]])]
        case CausalConv():
            weight = f.need(spec.weight)
            if installed(f, CONVOLUTION):
                return [delta_kernels.convolved(t, ins[0], aten.view(t, weight))]
            return [_conv(t, spec, ins[0], weight)]
        case DeltaRule():
            return _rule(f, spec, ins)
        case GatedNorm():
            return [_gated_norm(t, ins[0], ins[1], f.need(spec.weight))]


def installed(f: Frame, kernels: Kernels) -> bool:
    """Whether the run has the package of these kernels."""
    return bool(f.software.release(*kernels.packages))


def _mixed(f: Frame, heads: LinearHeads, qkvz: int, ba: int) -> list[int]:
    """Each part copied out of its projection; queries, keys and values beside each other in one more copy."""
    t, each = f.tape, heads.values // heads.keys
    key, value, gate = f.dims(heads.key_dims), f.dims(heads.value_dims), f.dims(heads.gates)
    q, k, v, z = aten.chunk(t, qkvz, (key, key, value, value))
    b, a = aten.chunk(t, ba, (gate, gate))
    split = [q, k, v, z, b, a]

    def seen(x: int) -> int:
        return aten.copy(t, x) if each > 1 else aten.view(t, x)

    v, z, b, a = seen(v), seen(z), seen(b), seen(a)
    t.end(split)
    named = [aten.copy(t, q), aten.copy(t, k), aten.view(t, v) if each > 1 else aten.copy(t, v)]
    t.end([v])
    side = aten.cat(t, named, f.dims((heads.mixed,)), "queries, keys and values")
    return [*named, z, b, a, side]


def _conv(t: Tape, spec: CausalConv, x: int, weight: int) -> int:
    """A convolution of each channel over time, padded at both ends, of which the end is cut off; then a function."""
    taps = spec.weight.dims[-1].size
    given = t.dtype[x]
    high = aten.to(t, x, t.dtype[weight])
    made = _padded_conv(t, high, weight, taps)
    t.end([high])
    out = aten.part(t, made, t.dims[x])
    out = out if spec.act is None else activation(t, spec.act, out)
    t.end([made])
    back = aten.to(t, out, given)
    t.end([out])
    return aten.view(t, back)


def _padded_conv(t: Tape, x: int, weight: int, taps: int) -> int:
    w, x = nn.lowered(t, aten.view(t, weight)), nn.lowered(t, x)  # seen without its dim of one, it is no leaf
    batch, sequence, channels = t.dims[x]
    grad = t.grad[x] or t.grad[w]
    out = t.fresh((batch, Axis(sequence.dim, sequence.size + taps - 1), channels), t.dtype[x], grad, "convolution")
    saves = (x, w) if grad else ()  # both, whichever of them needs a gradient
    return t.run(Prim("convolution", (x, w), (out,), saves, (Step(Code.GRAD, 0), Step(Code.GRAD, 1)), ()))


def _rule(f: Frame, spec: DeltaRule, ins: list[int]) -> list[int]:
    """Strengths and decays, then the rule."""
    t = f.tape
    *parts, b, a = ins
    q, k, v = _by_heads(f, parts, spec.heads)
    strength = aten.unary(t, "sigmoid", b, saves_out=True)
    rate = aten.unary(t, "neg", aten.unary(t, "exp", aten.to(t, f.need(spec.weight), FP32), saves_out=True))
    moved = aten.add(t, aten.to(t, a, FP32), f.need(spec.bias))
    decay = aten.mul(t, rate, aten.unary(t, "softplus", moved, saves_in=True), "decays")
    heads = spec.heads
    if heads.keys != heads.values and not at_least(f.setting.transformers, REPEATS.since):
        q, k = (delta_rule.repeated(t, x, heads) for x in (q, k))
        f.names.update(query=q, key=k)
        heads = replace(heads, keys=heads.values)
    chunked = delta_kernels.chunked if installed(f, RULE) else delta_rule.chunked
    core = chunked(t, delta_rule.Parts(q, k, v, strength, decay), heads)
    return [core, strength, decay]


def _by_heads(f: Frame, parts: list[int], heads: LinearHeads) -> tuple[int, int, int]:
    """Queries, keys and values by head, ahead of strengths and decays: their gradients arrive head by head and are
    copied, but for heads that were repeated, over whose copies is summed. Kernels leave them by token."""
    t, repeated = f.tape, heads.keys != heads.values
    q, k, v = parts
    dims = f.dims(heads.key_dims)
    if installed(f, RULE):
        return aten.view(t, q, dims), aten.view(t, k, dims), aten.view(t, v, f.dims(heads.value_dims))
    first, second = (aten.view(t, x, dims) if repeated else aten.heads_first(t, x, dims) for x in (q, k))
    return first, second, aten.heads_first(t, v, f.dims(heads.value_dims))


def _gated_norm(t: Tape, x: int, gate: int, weight: int) -> int:
    """The norm in fp32, cast back, times its weight; times the gate's SiLU in fp32, and cast back."""
    high = aten.to(t, x, FP32)
    var = aten.mean(t, aten.square(t, high))
    normal = aten.mul(t, high, aten.rsqrt(t, aten.shift(t, var)), "normalised")
    t.end([high])
    weighed = aten.mul(t, weight, aten.to(t, normal, t.dtype[x]), "weighed")
    t.end([normal])
    share = activation(t, ActKind.SILU, aten.to(t, aten.view(t, gate, t.dims[x]), FP32))
    wide = aten.mul(t, weighed, share, "gated")
    t.end([weighed])
    out = aten.to(t, wide, t.dtype[x])
    t.end([var, wide])
    return out

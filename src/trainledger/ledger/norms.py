"""Norms as primitives: how Transformers, torchtitan, LitGPT and Liger write them.

Sources: transformers/models/*/modeling_*.py (5.24.0); litgpt/model.py; liger_kernel/ops/rms_norm.py.
"""

from __future__ import annotations

from trainledger.facts.dtypes import FP32
from trainledger.ledger import aten, nn, rules_liger, rules_litgpt, rules_torchtitan
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Tape
from trainledger.model import program as p
from trainledger.model.program import NormKind

LAYERS = (NormKind.LAYER, NormKind.LAYER_HIGH, NormKind.LAYER_ONE_PLUS)


def norm(f: Frame, spec: p.Norm, x: int) -> int:
    """A norm of this kind."""
    t, weight = f.tape, f.param(spec.weight)
    if weight is not None and spec.kind in rules_liger.RMS_KINDS and rules_liger.replaces(f.software):
        return rules_liger.rms_norm(t, f.software, spec, x, weight)
    if spec.kind in LAYERS:
        return _layer(t, spec.kind, x, (weight, f.param(spec.bias)))
    if spec.kind is NormKind.LAYER_MANUAL and weight is not None:
        return _layer_by_hand(t, x, weight)
    if weight is not None and spec.kind is NormKind.RMS_NATIVE:
        return rules_torchtitan.norm(t, f.setting.torch, x, weight)
    if weight is not None and spec.kind in rules_litgpt.NORMS:
        return rules_litgpt.norm(t, spec.kind, x, weight)
    if spec.kind is NormKind.RMS_POWER:
        return _by_power(t, x, weight)
    high = aten.to(t, x, FP32)
    var = aten.mean(t, aten.square(t, high))
    inv = aten.rsqrt(t, aten.shift(t, var))
    normal = aten.mul(t, high, inv, "normalised")
    if spec.kind is NormKind.RMS and weight is not None:
        out = aten.mul(t, weight, aten.to(t, normal, t.dtype[x]), "output")
        t.end([var, normal])
        return out
    if spec.kind is NormKind.RMS_METHOD and weight is not None:
        low = aten.to(t, normal, t.dtype[x])
        out = aten.mul(t, low, weight, "output")
        t.end([low])
        return out
    if spec.kind is NormKind.RMS_ONE_PLUS and weight is not None:
        factor = aten.shift(t, aten.to(t, weight, FP32))
        return aten.to(t, aten.mul(t, normal, factor), t.dtype[x])
    if weight is None:
        return aten.to(t, normal, t.dtype[x])
    out = aten.to(t, aten.mul(t, weight, normal), t.dtype[x])
    t.end([var, normal])
    return out


def _by_power(t: Tape, x: int, weight: int | None) -> int:
    """Gemma4RMSNorm: its own method names the fp32 input and the mean square until it returns."""
    high = aten.to(t, x, FP32)
    mean = aten.shift(t, aten.mean(t, aten.square(t, high)))
    normal = aten.mul(t, high, aten.power(t, mean), "normalised")
    t.end([high, mean])
    if weight is not None:
        normal = aten.mul(t, normal, aten.to(t, weight, FP32), "weighed")
    return aten.to(t, normal, t.dtype[x])


def _layer(t: Tape, kind: NormKind, x: int, affine: tuple[int | None, int | None]) -> int:
    """torch's own function."""
    weight, bias = affine
    if kind is NormKind.LAYER_HIGH:
        return aten.to(t, nn.layer_norm(t, aten.to(t, x, FP32), weight, bias), t.dtype[x])
    if kind is NormKind.LAYER_ONE_PLUS and weight is not None:
        return _layer_one_plus(t, x, weight, bias)
    return nn.layer_norm(t, x, weight, bias)


def _layer_one_plus(t: Tape, x: int, weight: int, bias: int | None) -> int:
    """NemotronLayerNorm1P: under autocast all of it is cast to the low dtype, and the norm runs outside of it."""
    factor = aten.shift(t, weight)
    if t.autocast is None:
        return nn.layer_norm(t, x, factor, bias)
    low = t.autocast
    cast = [aten.to(t, one, low) for one in (x, factor)]
    other = bias if bias is None else aten.to(t, bias, low)
    t.end([factor])
    t.autocast = None
    out = nn.layer_norm(t, cast[0], cast[1], other)
    t.autocast = low
    t.end([*cast, *(() if other is None else (other,))])
    return out


def _layer_by_hand(t: Tape, x: int, weight: int) -> int:
    """CohereLayerNorm: mean and variance in fp32, times the weight in fp32, then the cast back."""
    high = aten.to(t, x, FP32)
    mean = aten.mean(t, high)
    var = aten.mean(t, aten.square(t, aten.sub(t, high, mean)))
    centred = aten.sub(t, high, mean)
    normal = aten.mul(t, centred, aten.rsqrt(t, aten.shift(t, var)), "normalised")
    t.end([high])
    out = aten.to(t, aten.mul(t, aten.to(t, weight, FP32), normal), t.dtype[x])
    t.end([mean, var])
    return out

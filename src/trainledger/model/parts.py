"""Pieces that families share: named weights, linears, attention and feed-forward lists of operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.program import (
    Act,
    ActKind,
    Add,
    Attention,
    Linear,
    Multiply,
    Norm,
    NormKind,
    Op,
    Role,
    Rope,
    View,
    Weight,
)

ACTIVATIONS: Mapping[str, ActKind] = {
    "silu": ActKind.SILU,
    "swish": ActKind.SILU,
    "gelu": ActKind.GELU,
    "gelu_new": ActKind.GELU_NEW,
    "gelu_pytorch_tanh": ActKind.GELU_TANH,
    "gelu_fast": ActKind.GELU_FAST,
    "relu": ActKind.RELU,
    "relu2": ActKind.RELU_SQUARED,
    "tanh": ActKind.TANH,
}


def axis(dim: Dim, size: int) -> Dims:
    """One trailing dim."""
    return (Axis(dim, size),)


@dataclass(frozen=True, slots=True)
class Heads:
    """The attention's shape: query heads, key and value heads, and the width of one."""

    query: int
    kv: int
    width: int

    def dims(self, kv: bool = False) -> Dims:
        """Heads and head dim, of queries or of keys and values."""
        count = Axis(Dim.KV_HEADS, self.kv) if kv else Axis(Dim.HEADS, self.query)
        return (count, Axis(Dim.HEAD_DIM, self.width))


def linear(name: str, source: Dims, target: Dims, bias: bool = False) -> Linear:
    """A torch.nn.Linear with its weights named: [target, source], and a bias of [target]."""
    return Linear(
        Weight(f"{name}.weight", (*target, *source)),
        Weight(f"{name}.bias", target, Role.BIAS) if bias else None,
    )


def norm(name: str, dims: Dims, kind: NormKind, bias: bool = False) -> Norm:
    """A norm with its weight (and bias) named."""
    return Norm(
        kind,
        Weight(f"{name}.weight", dims, Role.NORM),
        Weight(f"{name}.bias", dims, Role.NORM) if bias else None,
    )


def project(name: str, spec: Linear, ins: str, out: str, drop: tuple[str, ...] = ()) -> Op:
    """A linear layer as an operation; its result has the weight's leading dims."""
    target = spec.bias.dims if spec.bias else spec.weight.dims[: len(spec.weight.dims) - 1]
    return Op(name, spec, (ins,), (out,), target, drop)


def gated(prefix: str, hidden: Dims, width: int, act: ActKind, bias: bool = False) -> tuple[Op, ...]:
    """down(act(gate(x)) * up(x)): reads `x`, leaves its result in `x` (LlamaMLP)."""
    inner = axis(Dim.FFN, width)
    gate = linear(f"{prefix}.gate_proj", hidden, inner, bias)
    up = linear(f"{prefix}.up_proj", hidden, inner, bias)
    down = linear(f"{prefix}.down_proj", inner, hidden, bias)
    return (
        Op(f"{prefix}.gate_proj", gate, ("x",), ("gate",), inner),
        Op(f"{prefix}.act_fn", Act(act), ("gate",), ("act",), inner, ("gate",)),
        Op(f"{prefix}.up_proj", up, ("x",), ("up",), inner),
        Op(prefix, Multiply(), ("act", "up"), ("inner",), inner, ("act", "up")),
        Op(f"{prefix}.down_proj", down, ("inner",), ("x",), hidden, ("inner",)),
    )


def residual(name: str, hidden: Dims) -> Op:
    """h = h + x; the branch's result ends here."""
    return Op(name, Add(), ("h", "x"), ("h",), hidden, ("x",))


def rope(prefix: str, heads: Heads, rotary: int) -> Op:
    """Queries and keys rotated; their unrotated tensors end after it."""
    return Op(f"{prefix}.rotary", Rope(rotary, heads.width), ("q", "k"), ("q", "k"), heads.dims())


def attend(prefix: str, heads: Heads, spec: Attention) -> Op:
    """Scores and values."""
    return Op(f"{prefix}.attention", spec, ("q", "k", "v"), ("o",), heads.dims())


def flat(name: str, dims: Dims, value: str) -> Op:
    """A view with the heads merged."""
    return Op(name, View(), (value,), (value,), dims)


def by_heads(name: str, dims: Dims, value: str, rotated: bool = True) -> Op:
    """A projection seen by heads."""
    return Op(name, View(rotated), (value,), (value,), dims)

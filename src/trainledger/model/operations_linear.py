"""Operations of linear attention by the gated delta rule (Qwen3-Next, Qwen3.5)."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.operations import ActKind
from trainledger.model.weights import Weight


@dataclass(frozen=True, slots=True)
class LinearHeads:
    """Heads of linear attention: of queries and keys, of values, and the width of each. Each head of queries and keys
    serves as many heads of values."""

    keys: int
    values: int
    key_width: int
    value_width: int

    @property
    def key_dims(self) -> Dims:
        """Heads and head dim of queries, or of keys."""
        return (Axis(Dim.KV_HEADS, self.keys), Axis(Dim.HEAD_DIM, self.key_width))

    @property
    def value_dims(self) -> Dims:
        """Heads and head dim of values."""
        return (Axis(Dim.HEADS, self.values), Axis(Dim.HEAD_DIM, self.value_width))

    @property
    def gates(self) -> Dims:
        """One number for each head of values."""
        return (Axis(Dim.HEADS, self.values),)

    @property
    def mixed(self) -> Axis:
        """Queries, keys and values side by side."""
        both = self.keys * self.key_width
        return Axis(Dim.COLUMNS, both + both + self.values * self.value_width)


@dataclass(frozen=True, slots=True)
class Mixed:
    """Two fused projections, laid out by heads of keys, told apart: reads queries, keys, values and gates of outputs in
    one, strengths and decays in another; leaves queries, keys, values, gates, strengths, decays, and the first three
    side by side."""

    heads: LinearHeads


@dataclass(frozen=True, slots=True)
class Transposed:
    """The same storage, whose gradient lies channel by channel, or (`gates`) head by head: tokens inside each."""

    gates: bool = False


@dataclass(frozen=True, slots=True)
class CausalConv:
    """Each channel's last few tokens times its own weights [channels, 1, tokens], then a function (None: none)."""

    weight: Weight
    act: ActKind | None


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """The gated delta rule: reads queries, keys and values by token, strengths and decays before their functions;
    leaves what is read from the state at each token, the strengths and the decays. `weight`: the logarithm of each
    head's decay; `bias`: what is added to each token's before softplus."""

    heads: LinearHeads
    weight: Weight
    bias: Weight


@dataclass(frozen=True, slots=True)
class GatedNorm:
    """An RMS norm of each head times the gate's SiLU, both in fp32. Reads values and gates."""

    weight: Weight

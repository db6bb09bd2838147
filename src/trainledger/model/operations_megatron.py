"""The operations of Megatron-Core's layers, as its modules are cut.

Source: megatron/core/transformer/{transformer_layer,attention,mlp}.py, tensor_parallel/layers.py (0.14 to 0.19).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.model.weights import Weight


class Along(StrEnum):
    """Which dim of a linear layer's weight tensor parallelism spreads."""

    COLUMN = "column"  # its outputs; the input is whole, or gathered along the sequence
    ROW = "row"  # its inputs; the output is summed over ranks, or scattered along the sequence
    WHOLE = "whole"  # none: each rank has all of it, for its own part of the sequence


@dataclass(frozen=True, slots=True)
class Parallel:
    """ColumnParallelLinear or RowParallelLinear. `later`: its bias is handed on, for the operation that follows.
    `expert`: a routed expert's, which is spread over ranks of its own; `apart`: ranks exchange its input and output in
    operations of their own."""

    along: Along
    weight: Weight
    bias: Weight | None = None
    later: bool = True
    expert: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Normalise:
    """LayerNorm (with a bias) or RMSNorm of Megatron's layers."""

    weight: Weight
    bias: Weight | None = None


@dataclass(frozen=True, slots=True)
class NormalisedParallel:
    """A norm and the column-parallel layer that reads it, as one module (Transformer Engine)."""

    norm: Normalise
    linear: Parallel


@dataclass(frozen=True, slots=True)
class Queries:
    """The fused projection seen as queries, keys and values by head."""


@dataclass(frozen=True, slots=True)
class Turned:
    """Rotary embedding of queries and keys by angles that are made once."""


@dataclass(frozen=True, slots=True)
class Latents:
    """Keys and values in one latent, and the part of the keys that turns, of one projection."""


@dataclass(frozen=True, slots=True)
class Unfolded:
    """Queries, keys and values by head: of what latents were projected up to, and the turned part that all heads share.
    `straight`: a head's elements that do not turn."""

    straight: int


@dataclass(frozen=True, slots=True)
class Core:
    """Scores, softmax and values; `dropout` of the probabilities."""

    dropout: float = 0.0


@dataclass(frozen=True, slots=True)
class Activated:
    """The feed-forward's function of fc1's result: `gated`: of its first half, times the second; `bias`: fc1's, added
    first."""

    gated: bool
    bias: Weight | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Bias, dropout and residual sum of a branch."""

    dropout: float
    bias: Weight | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """VocabParallelEmbedding, learned positions where there are any, and dropout."""

    weight: Weight
    positions: Weight | None
    dropout: float


@dataclass(frozen=True, slots=True)
class Paired:
    """Two tensors of hidden states as one, of each token side by side."""


@dataclass(frozen=True, slots=True)
class Regathered:
    """A column-parallel layer's result gathered from all tensor-parallel ranks, of which each takes its part of the
    sequence where that is spread; `whole`: it keeps all of it."""

    whole: bool = False


@dataclass(frozen=True, slots=True)
class Whole:
    """The sequence gathered from the ranks over which it is spread."""


@dataclass(frozen=True, slots=True)
class Scattered:
    """This rank's part, along the sequence, of the sum over ranks."""


MegatronSpec = (
    Parallel
    | Normalise
    | NormalisedParallel
    | Queries
    | Turned
    | Latents
    | Unfolded
    | Core
    | Activated
    | Joined
    | Looked
    | Paired
    | Regathered
    | Whole
    | Scattered
)

"""Attention with sinks, experts with biases and clamped gates, and their router (gpt-oss)."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainledger.model.operations import Attention
from trainledger.model.weights import Weight


@dataclass(frozen=True, slots=True)
class SinkAttention(Attention):
    """Attention with a trained score of each head beside those of its keys, whose share is dropped."""

    sinks: Weight = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class BestRouter:
    """A linear layer's `top_k` best logits and a softmax over these alone, in their dtype. Reads the hidden state;
    leaves logits, scores and expert numbers. `high`: logits are cast to fp32, and the scores back to the hidden state's
    dtype (Granite)."""

    weight: Weight
    bias: Weight | None
    top_k: int
    high: bool = False


@dataclass(frozen=True, slots=True)
class ClampedExperts:
    """Routed experts as grouped products with a bias each; gate and up are interleaved columns, clamped, and joined as
    (up + 1) x gate x sigmoid(gate x a number). Weights are [experts, in, out]; reads what `Experts` reads."""

    top_k: int
    gate_up: Weight
    gate_up_bias: Weight
    down: Weight
    down_bias: Weight

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Its parameters in order."""
        return (self.gate_up, self.gate_up_bias, self.down, self.down_bias)

"""Operations of attention through latents, and of routers that choose among groups of experts (DeepSeek V2 and V3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.model.weights import Buffer, Weight


class Turn(StrEnum):
    """How elements of queries and keys are turned two by two."""

    COMPOUND = "compound"  # neighbours, as complex numbers in fp32 (DeepSeek V2)
    WHOLE = "whole"  # likewise, queries and keys both before either is cast back (Llama 4)
    NEIGHBOURS = "neighbours"  # neighbours, whose results are laid out half after half (DeepSeek V3)
    HALVES = "halves"  # one of each half (gpt-oss)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Queries and keys, or their turning parts, turned two by two."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Concat:
    """Several tensors one after the other along the last dim."""


@dataclass(frozen=True, slots=True)
class FilledKeys:
    """Keys of every head, written into a new tensor: first the heads' own parts, then the part that all share."""


@dataclass(frozen=True, slots=True)
class GroupRouter:
    """A router whose weight and logits are fp32, and its `top_k` best experts, times a Python number.

    `groups`: only experts of a few of so many groups are chosen (0: of all). `corrected`: scores are sigmoids, and a
    buffer is added to them for the choice alone; else they are a softmax. `normalise`: the chosen scores are divided by
    their sum. `high`: as said above; else (MiniMax) weight and logits have the model's dtype, the sigmoids alone are
    fp32, and no number scales the scores. Reads the hidden state; leaves logits, scores and expert numbers.
    """

    weight: Weight
    top_k: int
    groups: int
    kept: int
    normalise: bool
    corrected: Buffer | None = None
    high: bool = True

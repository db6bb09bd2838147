"""What Gemma 4 runs of its own: a router's trained factors, and keys and values that outlive their layer."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.model.weights import Weight


@dataclass(frozen=True, slots=True)
class Weighted:
    """Times a trained vector, then times a Python number."""

    weight: Weight


@dataclass(frozen=True, slots=True)
class ScaledBest:
    """Of logits over experts a softmax in fp32; its `top_k` best, divided by their sum and multiplied by a trained
    factor of their expert each. Leaves all probabilities, scores and expert numbers."""

    top_k: int
    scales: Weight


@dataclass(frozen=True, slots=True)
class Stored:
    """Keys and values are named by a dictionary that the model's forward hands to every layer, and leave nothing new.
    The dictionary is gone when that forward has returned or, where layers are recomputed, with their graph."""

"""The quick procedure: states, plus published activations, plus 10 to 30 percent. A rule of thumb, and labelled so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainledger.answer.states import rank_bytes
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.published import (
    LAYER_ACTIVATIONS,
    MODEL_ACTIVATIONS,
    OVERHEAD,
    PERCENT,
    SELECTIVE_FLOPS,
    LayerActivations,
)
from trainledger.facts.recipes import RECIPES, SPLITS, Recipe

LABEL = "rule of thumb"


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One GPT layer's sizes: tokens a sequence, sequences, hidden, heads, and the tensor-parallel degree."""

    sequence: int
    micro_batch: int
    hidden: int
    heads: int
    tensor: int = 1


@dataclass(frozen=True, slots=True)
class QuickInput:
    """What the quick procedure needs. `ranks`: data-parallel ranks; `activations`: a row of the published table."""

    parameters: int
    layers: int
    hidden: int
    heads: int
    sequence: int
    micro_batch: int = 1
    recipe: str = "mixed"
    ranks: int = 1
    strategy: str = "ddp"
    activations: str = "none"
    tensor: int = 1
    accumulation: int = 1


@dataclass(frozen=True, slots=True)
class QuickAnswer:
    """Bytes on one rank: states, activations, and the sum with the overhead's interval. Basis: published."""

    states: int
    activations: int
    low: int
    expected: int
    high: int
    global_batch: int
    sources: tuple[str, ...]
    label: str = LABEL

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain JSON values, bytes."""
        return {
            "label": self.label,
            "states": self.states,
            "activations": self.activations,
            "total": {"low": self.low, "expected": self.expected, "high": self.high},
            "global_batch": self.global_batch,
            "sources": list(self.sources),
        }


def quick(given: QuickInput, recipe: Recipe | None = None) -> QuickAnswer:
    """One rank's memory by rule of thumb, in bytes. `recipe`: copies that no named recipe has, in its place.

    States are divided by the tensor-parallel degree and split as the strategy says; activations are those of a GPT
    layer in 16 bits; the overhead covers buffers, workspace and fragments. Raises InputError with every problem.
    Sources: the rows used, listed in the answer.
    """
    _check(given)
    recipe, split = recipe or RECIPES[given.recipe], SPLITS[given.strategy]
    row = LAYER_ACTIVATIONS[given.activations]
    held = rank_bytes(recipe, split, -(-given.parameters // given.tensor), given.ranks)
    shape = LayerShape(given.sequence, given.micro_batch, given.hidden, given.heads, given.tensor)
    kept = given.layers * layer_bytes(row, shape)
    rest = held + kept
    low, high = (rest + _percent(rest, percent) for percent in (OVERHEAD.low_percent, OVERHEAD.high_percent))
    middle = low + (high - low) // len((low, high))
    batch = global_batch(given.micro_batch, given.ranks, given.accumulation)
    sources = tuple(str(source) for source in (recipe.source, split.source, row.source, OVERHEAD.source))
    return QuickAnswer(held, kept, low, middle, high, batch, sources)


def layer_bytes(row: LayerActivations, shape: LayerShape) -> int:
    """Bytes that one layer keeps for backward: s*b*h * (whole + (divided + scores*a*s/h) / t), rounded up."""
    tokens = shape.sequence * shape.micro_batch
    divided = tokens * (row.divided * shape.hidden + row.scores * shape.heads * shape.sequence)
    return tokens * shape.hidden * row.whole - (-divided // shape.tensor)


def layer_factor(row: LayerActivations, shape: LayerShape) -> float:
    """Bytes per s*b*h: the published row's coefficient for this shape (for example 34 + 5as/h)."""
    return row.whole + (row.divided + row.scores * shape.heads * shape.sequence / shape.hidden) / shape.tensor


def selective_gain(shape: LayerShape, layers: int, vocabulary: int) -> tuple[float, float]:
    """What recomputing only the attention core saves and costs: fractions of activations and of operations.

    Source: Reducing Activation Recomputation in Large Transformer Models, section 5 and equations 7 to 9.
    """
    before = layer_factor(LAYER_ACTIVATIONS["none"], shape)
    after = layer_factor(LAYER_ACTIVATIONS["selective"], shape)
    attention = shape.sequence / (SELECTIVE_FLOPS.width * shape.hidden)
    head = vocabulary / (SELECTIVE_FLOPS.head * layers * shape.hidden)
    return 1 - after / before, attention / (1 + attention + head)


def model_activations(layers: int, shape: LayerShape) -> int:
    """Bytes of a GPT-2-like model's activations in 16 bits by ZeRO's footnote: 12*h*b*s*L elements, two bytes each."""
    row = MODEL_ACTIVATIONS
    return row.elements * row.element_bytes * shape.hidden * shape.micro_batch * shape.sequence * layers


def global_batch(micro_batch: int, data_parallel: int, accumulation: int = 1) -> int:
    """Sequences per optimizer step: micro-batch x data-parallel degree x accumulation."""
    return micro_batch * data_parallel * accumulation


def _percent(size: int, percent: int) -> int:
    return -(-size * percent // PERCENT)


def _check(given: QuickInput) -> None:
    counts = ("parameters", "layers", "hidden", "heads", "sequence", "micro_batch", "ranks", "tensor", "accumulation")
    problems = [
        Problem(name, f"found {value}", "an integer of at least 1 is needed")
        for name in counts
        if (value := getattr(given, name)) < 1
    ]
    tables = (
        ("recipe", given.recipe, tuple(RECIPES)),
        ("strategy", given.strategy, tuple(SPLITS)),
        ("activations", given.activations, tuple(LAYER_ACTIVATIONS)),
    )
    for key, name, known in tables:
        if name not in known:
            near = nearest(name, known)
            fix = f"Did you mean {near}?" if near else ""
            problems.append(Problem(key, f"found {name!r}", f"one of {', '.join(known)} is needed", fix))
    if problems:
        raise InputError(problems)

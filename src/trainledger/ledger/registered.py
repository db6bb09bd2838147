"""A model's parameters one by one, in the order in which its class registers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainledger.facts.registration import is_early, is_leading, rank_in
from trainledger.model.program import Model, Weight


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A parameter: the piece of the model that it belongs to (0 the embedding, then layers, then the head), the prefix
    of its lines' names, its weight, and its elements. A parameter is equal to itself alone."""

    at: int
    prefix: str
    weight: Weight
    size: int

    @property
    def name(self) -> str:
        """The name of the parameter's lines."""
        return self.prefix + self.weight.name


def slots_of(model: Model) -> tuple[Slot, ...]:
    """Every parameter in the order of `model.parameters()`; what is shared is counted where it comes first."""
    layers = sorted((index, number) for number, block in enumerate(model.blocks) for index in block.layers)
    around = list(_ordered(model, len(layers) + 1, "", [one for one in model.head.weights if not one.tied]))
    ahead = [one for one in around if is_early(model.family, one.weight.name)]
    leading = [one for one in around if is_leading(model.family, one.weight.name)]
    found = [*leading, *_ordered(model, 0, "", model.embeddings), *ahead]
    for at, (_, number) in enumerate(layers, 1):
        block = model.blocks[number]
        found += _ordered(model, at, f"{block.name}.*.", block.weights)
    return (*found, *(one for one in around if one not in (*ahead, *leading)))


def _ordered(model: Model, at: int, prefix: str, weights: Sequence[Weight]) -> Iterator[Slot]:
    for weight in sorted(weights, key=lambda one: rank_in(model.family, one.name)):
        yield Slot(at, prefix, weight, weight.elements)

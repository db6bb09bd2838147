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
    leading, early, last = around(model)
    behind = len(layers) + 1
    found = [*_slots(behind, "", leading), *_slots(0, "", ordered(model, model.embeddings)), *_slots(behind, "", early)]
    for at, (_, number) in enumerate(layers, 1):
        block = model.blocks[number]
        found += _slots(at, f"{block.name}.*.", ordered(model, block.weights))
    return (*found, *_slots(behind, "", last))


def around(model: Model) -> tuple[list[Weight], list[Weight], list[Weight]]:
    """What the head has of its own: registered before all else, before the layers, and last."""
    own = ordered(model, [one for one in model.head.weights if not one.tied])
    leading = [one for one in own if is_leading(model.family, one.name)]
    early = [one for one in own if is_early(model.family, one.name) and one not in leading]
    return leading, early, [one for one in own if one not in (*leading, *early)]


def ordered(model: Model, weights: Sequence[Weight]) -> list[Weight]:
    """Weights of one piece of the model, as its class registers them."""
    return sorted(weights, key=lambda one: rank_in(model.family, one.name))


def _slots(at: int, prefix: str, weights: Sequence[Weight]) -> Iterator[Slot]:
    for weight in weights:
        yield Slot(at, prefix, weight, weight.elements)

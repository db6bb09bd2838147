"""The units in which a strategy gathers weights: which weights each holds, and which pieces of the model need it.

Pieces count from 0, the embedding, over the layers to the last, the head with its loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.facts.sharding import OWN_UNITS
from trainledger.facts.versions import at_least
from trainledger.model.program import Linear, Model, Role, Weight

ROOT, EMBEDDING, HEAD = "the root", "the embedding", "the head"
ROOT_UNIT = -1  # where strategies count the root among the pieces


@dataclass(frozen=True, slots=True)
class Unit:
    """Weights that are gathered and reduced together, and the prefix of their lines' names."""

    name: str
    prefix: str
    weights: tuple[Weight, ...]


@dataclass(frozen=True, slots=True)
class Units:
    """`own`: the unit that is open while a piece runs, by piece; `root`: what is open around all of them, None where
    every weight has a unit of its own; `pieces`: how many there are."""

    own: Mapping[int, Unit]
    root: Unit | None
    pieces: int

    @property
    def last(self) -> int:
        """The number of the last piece, the head with its loss."""
        return self.pieces - 1


def units_of(model: Model, versions: Mapping[str, str]) -> Units:
    """Every layer a unit. What is around them is the root; from accelerate 1.14 on, embedding and head by themselves.

    A weight that embedding and head share keeps both in one unit, the root.
    """
    layers = {
        index + 1: Unit(block.name, f"{block.name}.*.", block.weights)
        for block in model.blocks
        for index in block.layers
    }
    last = len(layers) + 1
    head = tuple(weight for weight in model.head.weights if not weight.tied)
    around = (*model.embeddings, *head)
    own = dict(layers)
    shared = any(isinstance(op.spec, Linear) and op.spec.weight in model.embeddings for op in model.head.ops)
    release = versions.get(OWN_UNITS.package)
    if release and at_least(release, OWN_UNITS.since) and not shared:
        words = tuple(weight for weight in model.embeddings if weight.role is Role.EMBEDDING)[:1]
        own |= {0: Unit(EMBEDDING, "", words), last: Unit(HEAD, "", head)}
        around = tuple(weight for weight in model.embeddings if weight not in words)
    return Units(own, Unit(ROOT, "", around) if around else None, last + 1)

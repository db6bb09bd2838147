"""Which model of the catalogue has the shape of one that is not in it: what it was tuned from, or is a copy of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from trainledger.base.problems import InputError
from trainledger.facts.import_hf_filled import COPIED, FORMER, TUNED, UNTUNED, WITHIN

TUNING, COPY = "tuning keeps a model's shape", "a copy of it under another name"


@dataclass(frozen=True, slots=True)
class Shape:
    """The Hub id of the catalogue's model, and whether it was tuned since (its files may have another dtype)."""

    base: str
    tuned: bool

    def __str__(self) -> str:
        return f"taken for {self.base}: {TUNING if self.tuned else COPY}"


def shape_of(name: str) -> Shape | None:
    """The catalogue's model that has the shape of this one; None where the name is known itself, or none is."""
    from trainledger.facts.catalogue import find_model

    for one, tuned in _names(name):
        with suppress(InputError):
            found = find_model(one)
            return Shape(found.hub_id, tuned) if one != name else None
    return None


def _names(name: str) -> Iterator[tuple[str, bool]]:
    """The name, then those that a model of its shape may have, and whether that was tuned."""
    owner, slash, own = name.rpartition("/")
    more = (own, *(f"{one}/{own}" for one in COPIED)) if slash and owner in COPIED else ()
    for first in (name, *more):
        for whole in dict.fromkeys((first, first.replace(*FORMER, 1))):
            yield whole, False
            if WITHIN[0] in whole:
                yield whole.replace(*WITHIN), True
            for ending in TUNED:
                if whole.endswith(ending):
                    yield from ((f"{whole.removesuffix(ending)}{plain}", True) for plain in UNTUNED)

"""What a row of the option tables says: a name, the values it takes, and what it does to memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source

AUTO = "auto"  # a value that the Trainer fills in


class Effect(StrEnum):
    """What the ledger does with an option: counts it, need not (it moves no memory), or does not count it yet."""

    COUNTED = "counted"
    NONE = "none"
    NOT_COUNTED = "not counted"


class Direction(StrEnum):
    """How a ledger that leaves an option out may be wrong: below the truth, above it, either, or not at all."""

    NONE = ""
    LOW = "the ledger may be too low"
    HIGH = "the ledger may be too high"
    EITHER = "the ledger may be too low or too high"


class Kind(StrEnum):
    """The values an option takes. A count is a whole number >= 0 and may carry a letter (5e8, 500M); some may be left
    to the Trainer (`auto`)."""

    BOOL = "true or false"
    COUNT = "a whole number of 0 or more"
    AUTO = "a whole number of 0 or more, or auto"
    NUMBER = "a number"
    TEXT = "text"
    TEXTS = "a list of texts"
    COUNTS = "a list of whole numbers"
    ANY = "any value"


@dataclass(frozen=True, slots=True)
class Row:
    """One option: `where` is the plan's map that holds it, `name` its key there (dotted when nested).

    Raises ValueError when an option that is not counted says no direction, or one that is counted says one.
    """

    name: str
    where: str
    kind: Kind
    effect: Effect
    direction: Direction
    source: Source

    def __post_init__(self) -> None:
        if (self.effect is Effect.NOT_COUNTED) != (self.direction is not Direction.NONE):
            raise ValueError(f"{self.where}.{self.name}: a direction goes with 'not counted', and only with it")


Entry = tuple[str, Kind, Direction]


def counted(where: str, source: Source, entries: tuple[tuple[str, Kind], ...]) -> tuple[Row, ...]:
    """Rows that the ledger counts."""
    return tuple(Row(name, where, kind, Effect.COUNTED, Direction.NONE, source) for name, kind in entries)


def harmless(where: str, source: Source, entries: tuple[tuple[str, Kind], ...]) -> tuple[Row, ...]:
    """Rows that move no memory, as `source` says."""
    return tuple(Row(name, where, kind, Effect.NONE, Direction.NONE, source) for name, kind in entries)


def uncounted(where: str, source: Source, entries: tuple[Entry, ...]) -> tuple[Row, ...]:
    """Rows that move memory and are not counted yet, each with the direction of the error."""
    return tuple(Row(name, where, kind, Effect.NOT_COUNTED, way, source) for name, kind, way in entries)

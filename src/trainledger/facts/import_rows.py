"""What a row of an importer's table says: a key of an outside file, and what it means for memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.option_row import Direction


class Means(StrEnum):
    """What an outside key does: the importer reads it into the plan; it moves no memory; it does and is not counted."""

    READ = "read"
    NOTHING = "no effect on memory"
    UNCOUNTED = "not counted"


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One key of an outside format (dotted where nested; `*` stands for any name at its place).

    `path`: the plan's key that takes its value as it is; empty where the importer's code reads it.
    Raises ValueError when a key that is not counted says no direction, or another says one.
    """

    name: str
    means: Means
    source: Source
    path: str = ""
    direction: Direction = Direction.NONE

    def __post_init__(self) -> None:
        if (self.means is Means.UNCOUNTED) != (self.direction is not Direction.NONE):
            raise ValueError(f"{self.name}: a direction goes with 'not counted', and only with it")


@dataclass(frozen=True, slots=True)
class FilledRow:
    """What a format's framework does where a key is left out: the plan's key, its value, why, since which release.

    `since` and `until` (first release without it) are empty where no change is known.
    """

    path: str
    value: object
    why: str
    source: Source
    since: str = ""
    until: str = ""


def read(source: Source, names: Iterable[str]) -> tuple[KeyRow, ...]:
    """Keys that the importer's code reads."""
    return tuple(KeyRow(name, Means.READ, source) for name in names)


def straight(source: Source, paths: Iterable[tuple[str, str]]) -> tuple[KeyRow, ...]:
    """Keys whose value a key of the plan takes as it is."""
    return tuple(KeyRow(name, Means.READ, source, path) for name, path in paths)


def nothing(source: Source, names: Iterable[str]) -> tuple[KeyRow, ...]:
    """Keys that move no memory."""
    return tuple(KeyRow(name, Means.NOTHING, source) for name in names)


def uncounted(source: Source, names: Iterable[tuple[str, Direction]]) -> tuple[KeyRow, ...]:
    """Keys that move memory and cannot be counted, with the direction of the error."""
    return tuple(KeyRow(name, Means.UNCOUNTED, source, direction=way) for name, way in names)


# How sure a format is of an input: its own key stands there; keys that few others have; a name that others could have;
# keys that others have, too.
CERTAIN, LIKELY, RATHER, PERHAPS = 1.0, 0.8, 0.6, 0.4

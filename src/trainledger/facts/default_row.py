"""What a row of the defaults says: a key of the plan, the value a framework gives it when it is left out, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Follows:
    """A default that is the value of another key."""

    path: str


@dataclass(frozen=True, slots=True)
class Of:
    """A default that a function of another key's value gives; None where there is none."""

    path: str
    rule: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Given:
    """A condition that holds when a key has a value other than null."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A condition that holds when a key is left out."""


GIVEN, ABSENT = Given(), Absent()
Condition = tuple[str, tuple[object, ...] | Given | Absent]


@dataclass(frozen=True, slots=True)
class DefaultRow:
    """The default of `path` where every condition of `when` holds and every package of `since` is that new or newer.

    A condition names a key and the values it may have. The first row of a path that applies gives its default.
    """

    path: str
    value: object
    why: str
    source: Source
    when: tuple[Condition, ...] = ()
    since: tuple[tuple[str, str], ...] = ()

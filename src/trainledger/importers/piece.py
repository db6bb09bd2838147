"""What one outside file says of a plan: keys of the plan with where they come from, and what was not taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from trainledger.base.problems import Problem
from trainledger.base.sources import Source
from trainledger.importers.draft import Ignored, Uncounted, Unknown

AUTO = "auto"  # a value that another file, or the framework, fills in


class Rank(IntEnum):
    """Whose word counts where two pieces say one key: a command line's over that of a file that it names, a model's own
    files over its name, what follows of all files together over each, and what was given beside the files over all."""

    FILE = 0
    COMMAND = 1
    MODEL = 2
    SETTLED = 3
    FLAG = 4


@dataclass(frozen=True, slots=True)
class Given:
    """A value of the plan, and the outside key and place (`file:line key`) that gave it; `source`: of a default, whose
    place is `default: ` and why."""

    value: Any
    where: str
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Filled:
    """A value of the plan that a framework has where its key is left out."""

    value: Any
    why: str
    source: Source


@dataclass(slots=True)
class Piece:
    """Built by an importer from one input. Paths are the plan's, dotted; `model` may be a name or keys.

    `rank`: of two pieces that say something of one key, the higher one's word counts; equal ranks that differ are an
    error. `files`: further files that this one names, with the
    key that names each, to be read as inputs of their own.
    """

    format: str
    name: str
    rank: int = Rank.FILE
    given: dict[str, Given] = field(default_factory=dict)
    filled: dict[str, Filled] = field(default_factory=dict)
    ignored: list[Ignored] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    uncounted: list[Uncounted] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)  # path as written, where it is named
    facts: dict[str, Given] = field(default_factory=dict)  # what other importers may ask of this one, by name

    def give(self, path: str, value: Any, where: str) -> None:
        """Say a key of the plan."""
        self.given[path] = Given(value, where)

    def fill(self, path: str, value: Any, why: str, source: Source) -> None:
        """Say what the framework has where the key is left out."""
        self.filled[path] = Filled(value, why, source)

    def refuse(self, path: str, found: str, allowed: str, fix: str = "", where: str = "") -> None:
        """Note a problem with an outside key."""
        self.problems.append(Problem(path, found, allowed, fix, where))

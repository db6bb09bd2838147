"""A text read into plain data that still knows on which line every key stands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.facts.limits import NESTING, VALUES

Path = tuple[str | int, ...]
SET = "--set "  # how the place of a key begins that a command line changes


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data (mappings, lists, scalars) and the place (`file:line`) of each of its keys."""

    data: Any
    places: dict[Path, str]

    def where(self, path: Path) -> str:
        """The place of the key, or of the nearest key above it; empty when there is none."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return ""

    def folder(self, path: Path, folder: str) -> str:
        """Where a path that stands under a key starts: what a command line gives, in the working folder (empty), what
        the file says in the file's own, `folder`."""
        return "" if self.where(path).startswith(SET) else folder


@dataclass(slots=True)
class Builder:
    """What both readers share: the places of keys, keys given twice, and the bounds on depth and count."""

    name: str
    places: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    values: int = 0

    def place(self, line: int) -> str:
        """`file:line` of a line counted from 1."""
        return f"{self.name}:{line}" if self.name else ""

    def enter(self, path: Path, line: int) -> None:
        """Count one value. Raises InputError past the bounds on nesting and on the number of values."""
        self.values += 1
        if len(path) > NESTING.value:
            self.fail(line, "nested too deeply", f"at most {NESTING.value} {NESTING.unit} are read")
        if self.values > VALUES.value:
            self.fail(line, "too many values", f"at most {VALUES.value:,} {VALUES.unit} are read")

    def key(self, into: dict[str, Any], path: Path, key: str, line: int) -> None:
        """Note where a key stands, and that it was given before if it was."""
        here = (*path, key)
        if key in into:
            dotted = ".".join(map(str, here))
            self.problems.append(
                Problem(
                    dotted, f"given twice (first at {self.places[here]})", "a key is given once", where=self.place(line)
                )
            )
        self.places[here] = self.place(line)

    def fail(self, line: int, found: str, allowed: str) -> None:
        """Give up on the text, with what was found there. Raises InputError."""
        raise InputError([Problem("", found, allowed, where=self.place(line))])

    def finish(self, data: Any) -> Document:
        """The document. Raises InputError when keys were given twice."""
        if self.problems:
            raise InputError(self.problems)
        self.places.setdefault((), self.name)
        return Document(data, self.places)


def renamed(error: InputError, path: str) -> InputError:
    """The same problems, under the key that led to the text they were found in."""
    return InputError([replace(one, path=f"{path}.{one.path}" if one.path else path) for one in error.problems])

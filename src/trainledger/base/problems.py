"""What is wrong with an input: a key's path, what was found, what is allowed, and the fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input. `where` is `file:line` when known, or `file:line key`; `path` is the
    key's dotted path."""

    path: str
    found: str
    allowed: str
    fix: str = ""
    where: str = ""

    def __str__(self) -> str:
        fix = f" {self.fix}" if self.fix else ""
        named = self.path and self.where.endswith(f" {self.path}")  # the place names the key already
        parts = (self.where, "" if named else self.path or "input", f"{self.found}; {self.allowed}.{fix}")
        return ": ".join(part for part in parts if part)


class InputError(ValueError):
    """The input is wrong. Carries every problem found, so that all are listed at once (exit code 2)."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def wrong(path: str, found: str, allowed: str, fix: str = "") -> InputError:
    """An input with this one problem."""
    return InputError([Problem(path, found, allowed, fix)])


# how alike two words are: may be meant; is likely meant by what was typed by hand; differ by a letter or two
NEAR, TYPED, MISSPELT = 0.6, 0.86, 0.93


def nearest(word: str, known: Iterable[str], alike: float = NEAR) -> str:
    """The known word nearest to `word`, or an empty string when none is as near as `alike`."""
    matches = get_close_matches(word, list(known), n=1, cutoff=alike)
    return matches[0] if matches else ""


class RefusedError(InputError):
    """The input is right, and beyond what is asked of it: a plan whose code cannot be traced, key by key."""


class TraceError(Exception):
    """Code that cannot be traced; the message is one line that names the module and what it did."""

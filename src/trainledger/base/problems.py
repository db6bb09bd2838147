"""What is wrong with an input: a key's path, what was found, what is allowed, and the fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input. `where` is `file:line` when known; `path` is the key's dotted path."""

    path: str
    found: str
    allowed: str
    fix: str = ""
    where: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        fix = f" {self.fix}" if self.fix else ""
        return f"{place}{self.path or 'input'}: {self.found}; {self.allowed}.{fix}"


class InputError(ValueError):
    """The input is wrong. Carries every problem found, so that all are listed at once (exit code 2)."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word nearest to `word`, or an empty string when none is near."""
    matches = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else ""


class RefusedError(InputError):
    """The input is right, and beyond what is asked of it: a plan whose code cannot be traced, key by key."""


class TraceError(Exception):
    """Code that cannot be traced; the message is one line that names the module and what it did."""

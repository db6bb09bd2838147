"""Where a number comes from, and how it is known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """How a line's number is known.

    counted: follows from shapes and the code's own rules; published: a formula of a paper or manual;
    measured: read off a device or an allocator; assumed: neither, so an interval carries it.
    """

    COUNTED = "counted"
    PUBLISHED = "published"
    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Source:
    """A place a reader can look up: a title, where it is (URL, file at a version, paper section), and a date.

    Raises ValueError when `title` or `where` is empty: a row without a source does not construct.
    """

    title: str
    where: str
    date: str = ""

    def __post_init__(self) -> None:
        if not self.title.strip() or not self.where.strip():
            raise ValueError("a source needs a title and a place")

    def __str__(self) -> str:
        dated = f", {self.date}" if self.date else ""
        return f"{self.title} ({self.where}{dated})"

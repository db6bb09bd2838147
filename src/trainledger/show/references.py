"""Numbered references: a source is printed once, however many lines rest on it."""

from __future__ import annotations

from trainledger.show.table import Section


class References:
    """Sources in the order in which they were first named."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, source: object) -> str:
        """`[3]`: the number of that source, a new one where it was not named before."""
        return f"[{self._numbers.setdefault(str(source), len(self._numbers) + 1)}]"

    def section(self) -> Section:
        """The list of the sources named so far."""
        return Section("Sources", tuple(f"[{number}] {source}" for source, number in self._numbers.items()))

"""Events that a strategy puts among those of a piece."""

from __future__ import annotations

from collections.abc import Sequence

from trainledger.lines.stream import Events


class Woven:
    """Events to put among others, by after how many of these."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[int, Events] = {}

    def add(self, at: int, events: Sequence[int]) -> None:
        """More events at this place, after those that are there."""
        if events:
            self.found[at] = (*self.found.get(at, ()), *events)

"""Events that are put among others: by a strategy among those of a piece, by cuBLAS or a name among a step's."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from trainledger.lines.stream import Events, Segment


class Woven:
    """Events to put among others, by after how many of these."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: dict[int, Events] = {}

    def add(self, at: int, events: Sequence[int]) -> None:
        """More events at this place, after those that are there."""
        if events:
            self.found[at] = (*self.found.get(at, ()), *events)


def rebound(events: Events, named: Sequence[int]) -> Events:
    """The events with the death of each of these lines' older tensor as the new one takes its name."""
    return tuple(one for event in events for one in ((event, -event) if event - 1 in named else (event,)))


def with_workspace(
    segments: list[Segment], products: Mapping[Events, int], line: int, ahead: Sequence[int] = ()
) -> list[Segment]:
    """The segments of one thread in which cuBLAS takes its workspace once its first product's result is there; lines
    that are made `ahead` of the result."""
    for number, (moment, events, repeat, _) in enumerate(segments):
        after = products.get(events, 0)
        if after:
            made = (*(one + 1 for one in ahead), events[after - 1], line + 1)
            split = [Segment(moment, (*events[: after - 1], *made, *events[after:]))]
            rest = [Segment(moment, events, repeat - 1)] if repeat > 1 else []
            return [*segments[:number], *split, *rest, *segments[number + 1 :]]
    return segments


def made_before(segments: list[Segment], lines: Container[int], made: Events) -> list[Segment]:
    """The segments with these events before the first birth of one of these lines; as they are where none is born."""
    for number, (moment, events, repeat, _) in enumerate(segments):
        at = next((at for at, event in enumerate(events) if event > 0 and event - 1 in lines), None)
        if at is not None:
            split = [Segment(moment, (*events[:at], *made, *events[at:]))]
            rest = [Segment(moment, events, repeat - 1)] if repeat > 1 else []
            return [*segments[:number], *split, *rest, *segments[number + 1 :]]
    return segments

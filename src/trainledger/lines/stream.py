"""Births and deaths of lines over a run, in order, folded into moments and peaks.

A segment is a run of events of one moment, repeated for equal layers. An event is a line's number plus one at a
birth, its negative at a death, or EMPTY. Plain integers: equal layers are not written out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainledger.lines.line import Line

Events = tuple[int, ...]

EMPTY = 0  # an event that is no line's: the allocator is told to give back what it caches (empty_cache)


class Segment(NamedTuple):
    """Events of a moment, `repeat` times in a row. `lane`: which of the micro-batches in flight they are of, where
    several are (below 0: of one's received gradients, which have a line in common with those it makes); 0: of none."""

    moment: str
    events: Events
    repeat: int = 1
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """A named moment at its largest: bytes, and the lines live then with their number of copies."""

    name: str
    allocated: int
    live: tuple[tuple[int, int], ...]


class _Shape(NamedTuple):
    net: int
    high: int
    at: int


def _shape(events: Events, units: Sequence[int]) -> _Shape:
    """Net bytes of a run of events, its highest point, and after how many events that is."""
    total = high = at = 0
    for position, event in enumerate(events):
        if event > 0:
            total += units[event - 1]
            if total > high:
                high, at = total, position + 1
        elif event:
            total -= units[-event - 1]
    return _Shape(total, high, at)


class Spot(NamedTuple):
    """Where a moment is at its largest: bytes, the segment, the turn of its repetition, and after how many events."""

    total: int
    segment: int
    turn: int
    at: int


def _spots(segments: Sequence[Segment], units: Sequence[int]) -> dict[str, Spot]:
    shapes: dict[int, _Shape] = {}
    spots: dict[str, Spot] = {}
    total = 0
    for index, (moment, events, repeat, _) in enumerate(segments):
        shape = shapes.get(id(events))
        if shape is None:
            shape = shapes[id(events)] = _shape(events, units)
        turn = repeat - 1 if shape.net > 0 else 0
        high = total + turn * shape.net + shape.high
        if moment not in spots or high > spots[moment].total:
            spots[moment] = Spot(high, index, turn, shape.at)
        total += repeat * shape.net
    return spots


def _net(events: Events) -> dict[int, int]:
    """Lines of which a run of events leaves more copies, or fewer: by how many."""
    seen, net = Counter(events), dict[int, int]()
    for event, times in seen.items():
        copies = times - seen.get(-event, 0)
        if copies and (event > 0 or -event not in seen):  # a line that is born and dies is looked at once
            net[abs(event) - 1] = copies if event > 0 else -copies
    return net


def _count(counts: Counter[int], net: Mapping[int, int], times: int) -> None:
    for line, copies in net.items():
        counts[line] += copies * times


def net(segments: Iterable[Segment]) -> Counter[int]:
    """By line, births less deaths of some segments; lines in the order in which they first appear."""
    times, runs = Counter[int](), dict[int, Events]()  # by the identity of a run of events, which equal layers share
    for _, events, repeat, _ in segments:
        times[id(events)] += repeat
        runs[id(events)] = events
    found = Counter[int]()
    for one, events in runs.items():
        for event in events:
            if event:
                found[abs(event) - 1] += times[one] if event > 0 else -times[one]
    return found


def fold(lines: Sequence[Line], segments: Sequence[Segment]) -> tuple[Moment, ...]:
    """Every moment at its largest, in order of first appearance. The live lines add up to its bytes, exactly."""
    return lives(segments, _spots(segments, [line.unit for line in lines]))


def lives(segments: Sequence[Segment], spots: Mapping[str, Spot]) -> tuple[Moment, ...]:
    """The moments with the lines that are live at these spots."""
    wanted: dict[int, list[tuple[str, Spot]]] = {}
    for name, spot in spots.items():
        wanted.setdefault(spot.segment, []).append((name, spot))
    live: dict[str, tuple[tuple[int, int], ...]] = {}
    nets: dict[int, dict[int, int]] = {}  # by the identity of a run of events, which equal layers share
    times: dict[int, int] = {}
    for index, (_, events, repeat, _) in enumerate(segments[: max(wanted, default=0) + 1]):
        for name, spot in wanted.get(index, ()):
            here = Counter[int]()
            for one, count in times.items():
                _count(here, nets[one], count)
            if spot.turn:
                _count(here, _net(events), spot.turn)
            _count(here, _net(events[: spot.at]), 1)
            live[name] = tuple(sorted((line, copies) for line, copies in here.items() if copies))
        if id(events) not in nets:
            nets[id(events)] = _net(events)
            times[id(events)] = 0
        times[id(events)] += repeat
    return tuple(Moment(name, spot.total, live[name]) for name, spot in spots.items())


def highest(segments: Sequence[Segment], units: Sequence[int]) -> int:
    """The largest sum of the live lines' units over all segments."""
    return max((spot.total for spot in _spots(segments, units).values()), default=0)


def total(lines: Sequence[Line], live: Sequence[tuple[int, int]]) -> int:
    """Bytes of live lines."""
    return sum(lines[line].unit * copies for line, copies in live)

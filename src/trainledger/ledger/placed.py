"""Lines that lie elsewhere than their framework puts them, and page-locked memory that is not rounded up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainledger.base.dims import elements
from trainledger.base.places import Place
from trainledger.base.sources import Basis
from trainledger.base.units import MIB
from trainledger.facts.allocator_settings import PINNED
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import Segment, fold
from trainledger.plan.schema import Plan

if TYPE_CHECKING:
    from trainledger.ledger.rank import Ledger

WHY = "moved as it is: no staging, no copy left behind"


def placed(ledger: Ledger, plan: Plan) -> Ledger:
    """The ledger with every kind where the plan's `offload.places` has it, and with page-locked tensors as large as
    the allocator's own setting leaves them."""
    limits = [plan.stack.allocator[one.name] * MIB for one in PINNED if plan.stack.allocator.get(one.name) is not None]
    if limits and ledger.host:
        ledger = replace(ledger, host=tuple((_unrounded(line, min(limits)), copies) for line, copies in ledger.host))
    given = {Account(kind): Place(place) for kind, place in plan.offload.places.items()}
    wanted = {account: place for account, place in given.items() if place is not Place.DEVICE}
    return moved(ledger, wanted) if wanted else ledger


def moved(ledger: Ledger, places: Mapping[Account, Place]) -> Ledger:
    """The ledger with the lines of these accounts at these places, each with as many copies as are alive at most. Their
    bytes are those that they have on the device, so that nothing is lost or gained on the way."""
    away = {number for number, line in enumerate(ledger.lines) if line.account in places}
    gone = tuple(_without(segment, away) for segment in ledger.segments)
    most = _most(ledger.segments, away)
    host = tuple(
        (replace(ledger.lines[number], place=places[ledger.lines[number].account], why=WHY), copies)
        for number, copies in sorted(most.items())
        if copies
    )
    return replace(ledger, segments=gone, moments=fold(ledger.lines, gone), host=(*ledger.host, *host))


def _without(segment: Segment, away: set[int]) -> Segment:
    events = segment.events
    if not any(abs(event) - 1 in away for event in events):
        return segment
    return segment._replace(events=tuple(event for event in events if abs(event) - 1 not in away))


def _most(segments: Sequence[Segment], away: set[int]) -> dict[int, int]:
    """How many copies of each of these lines are alive at most."""
    now, most = dict.fromkeys(away, 0), dict.fromkeys(away, 0)
    for _, events, repeat, _ in segments:
        here: dict[int, int] = {}
        high: dict[int, int] = {}
        for event in events:
            line = abs(event) - 1
            if line in away:
                here[line] = here.get(line, 0) + (1 if event > 0 else -1)
                high[line] = max(high.get(line, 0), here[line])
        for line, net in here.items():
            most[line] = max(most[line], now[line] + max(net, 0) * (repeat - 1) + high[line])
            now[line] += net * repeat
    return most


def _unrounded(line: Line, limit: float) -> Line:
    """A page-locked tensor above the setting is taken as it is."""
    size = line.dtype.bytes_of(elements(line.dims))
    if line.place is not Place.HOST or line.unit == size or size <= limit:
        return line
    return replace(line, unit=size, basis=Basis.COUNTED, source=PINNED[0].source, why="page-locked, and not rounded up")

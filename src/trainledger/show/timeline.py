"""The timeline of a run as a table with bars, or for programs."""

from __future__ import annotations

from typing import Any

from trainledger.answer.tables import cells
from trainledger.answer.timeline import Timeline
from trainledger.show.estimate import BARS, View
from trainledger.show.table import Screen, Section


def section(found: Timeline, units: str, screen: Screen) -> Section:
    """A row for every action: allocated once it is done, at most within it, and a bar."""
    view, bars = View(units), cells(found.shares, screen.width, BARS)
    rows = tuple(
        (tick.name, view.size(tick.after), view.size(tick.most), "".ljust(length, screen.block))
        for tick, length in zip(found.ticks, bars, strict=True)
    )
    strong = tuple(at for at, share in enumerate(found.shares) if share == 1)
    head = ("action", "after it", "at most", "")
    return Section(f"Memory over the schedule of rank {found.rank:,}", (), head, rows, (1, 2), strong)


def document(found: Timeline) -> dict[str, Any]:
    """The timeline for programs: sizes in bytes."""
    ticks = [{"name": tick.name, "allocated": tick.most, "after": tick.after} for tick in found.ticks]
    return {"rank": found.rank, "timeline": ticks}

"""A trace of code without a plan, as sections and as data."""

from __future__ import annotations

from typing import Any

from trainledger.answer.bands import Band, Peak
from trainledger.answer.estimate import states_of
from trainledger.answer.tables import by_account, cells, entries
from trainledger.answer.traced import Traced
from trainledger.base.dims import shape_text
from trainledger.base.units import format_count
from trainledger.lines.stream import Moment
from trainledger.show.budgets import band
from trainledger.show.document import EVERY, entry_data
from trainledger.show.estimate import BARS, HEAD, LINES_HEAD, View, verdict_section
from trainledger.show.references import References
from trainledger.show.table import Screen, Section


def sections(answer: Traced, title: str, view: View, screen: Screen) -> tuple[Section, ...]:
    """Everything that is printed. Raises InputError for an unknown moment."""
    every = [one.name for one in answer.ledger.moments]
    names = every if view.moment.strip().lower() == EVERY else [view.moment]
    named = References()
    count, trained = answer.record.parameters
    versions = ", ".join(f"{name} {version}" for name, version in answer.record.versions.items())
    return (
        Section(
            f"{title}: {count:,} parameters ({format_count(count)}), {trained:,} trained", (f"traced with {versions}",)
        ),
        *((verdict_section(answer.verdict, view),) if answer.hardware else ()),
        _amounts(answer, view),
        *(_accounts(answer, answer.moment(name), view, (screen, named)) for name in names),
        _moments(answer, view, screen),
        Section("Notes", tuple(f"- {note}" for note in answer.notes)),
        named.section(),
    )


def _amounts(answer: Traced, view: View) -> Section:
    peak = answer.peak
    rows = (
        ("allocated", view.size(peak.allocated.expected), "live tensors, in the blocks that the allocator gave them"),
        ("reserved", view.size(peak.reserved.expected), "what the caching allocator took: its replay"),
        ("device", view.size(answer.device.expected), "reserved, and the process's context"),
    )
    title = f"Peak: {view.size(peak.allocated.expected)} allocated at {peak.moment}"
    return Section(title, (), ("", "bytes", "what it is"), rows, (1,))


def _accounts(answer: Traced, moment: Moment, view: View, how: tuple[Screen, References]) -> Section:
    screen, named = how
    rows = by_account(entries(answer.ledger, moment))
    title = f"{moment.name}{' (the peak)' if moment.name == answer.peak.moment else ''}, by account"
    if not view.lines:
        bars = cells([row.share for row in rows], screen.width, BARS)
        shown = tuple(
            (row.account.value, view.size(row.bytes), f"{row.share:.1%}", "".ljust(length, screen.block))
            for row, length in zip(rows, bars, strict=True)
        )
        return Section(title, (), HEAD, (*shown, ("total", view.size(moment.allocated), "100.0%", "")), (1, 2))
    unfolded: list[tuple[str, ...]] = []
    for row in rows:
        unfolded.append((row.account.value, view.size(row.bytes), f"{row.share:.1%}", "", "", "", ""))
        for entry in row.entries:
            line = entry.line
            known = f"{line.basis.value} {named.mark(line.source)}"
            size, dims = view.size(entry.bytes), shape_text(line.dims)
            unfolded.append((f"  {line.name}", size, "", f"{entry.copies:,}", line.dtype.name, dims, known))
    return Section(title, (), LINES_HEAD, tuple(unfolded), (1, 2, 3))


def _moments(answer: Traced, view: View, screen: Screen) -> Section:
    found = answer.ledger.moments
    bars = cells(answer.shares, screen.width, BARS)
    rows = tuple(
        (one.name, view.size(one.allocated), "".ljust(length, screen.block) + _mark(answer, one))
        for one, length in zip(found, bars, strict=True)
    )
    return Section("Moments, each at its largest", (), ("moment", "allocated", ""), rows, (1,))


def _mark(answer: Traced, moment: Moment) -> str:
    return " <- peak" if moment.name == answer.peak.moment else ""


def document(answer: Traced, moment: str = "") -> dict[str, Any]:
    """The trace as JSON values; sizes in bytes. Raises InputError for an unknown moment."""
    every = moment.strip().lower() == EVERY
    shown = answer.moment("" if every else moment)
    return {
        "parameters": dict(zip(("total", "trainable"), answer.record.parameters, strict=True)),
        "peak": {**_peak(answer.peak), "device": band(answer.device), "steps": _peak(answer.steps)},
        "states": states_of(answer.ledger),
        "moments": [{"name": one.name, "allocated": one.allocated} for one in answer.ledger.moments],
        "moment": shown.name,
        "entries": [entry_data(entry) for entry in entries(answer.ledger, shown, every)],
        "verdict": answer.verdict.to_dict(),
        "kernels": dict(answer.record.kernels),
        "versions": dict(answer.record.versions),
        "notes": list(answer.notes),
    }


def _peak(peak: Peak) -> dict[str, Any]:
    amounts: tuple[tuple[str, Band], ...] = (
        ("allocated", peak.allocated), ("active", peak.active), ("reserved", peak.reserved),
    )  # fmt: skip
    return {"moment": peak.moment, **{name: band(amount) for name, amount in amounts}}

"""An explanation as text and as plain data: every step of a line's arithmetic, enough to check it by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainledger.answer.formula import Explanation, Formula
from trainledger.base.dims import shape_text
from trainledger.base.units import BITS_PER_BYTE
from trainledger.show.document import entry_data
from trainledger.show.estimate import View
from trainledger.show.table import Section


def sections(found: Explanation, word: str, view: View) -> tuple[Section, ...]:
    """A title, then one section a line of the ledger, largest first."""
    count = f"{len(found.formulas)} line{'' if len(found.formulas) == 1 else 's'}"
    notes = (found.note,) if found.note else ()
    title = Section(f"{word} at {found.moment}", (f"{view.size(found.bytes)} = {found.bytes:,} B in {count}", *notes))
    return (title, *(_line(one, found, view) for one in found.formulas))


def document(found: Explanation, word: str) -> dict[str, Any]:
    """The explanation as JSON values, sizes in bytes."""
    return {
        "account": word,
        "moment": found.moment,
        "bytes": found.bytes,
        "note": found.note,
        "lines": [
            {
                **entry_data(one.entry),
                "elements": one.elements,
                "bits_per_element": one.bits,
                "payload_bytes": one.payload,
                "block_bytes": one.block,
                "added_bytes": one.added,
                "block_why": one.block_why,
            }
            for one in found.formulas
        ],
    }


def _line(one: Formula, found: Explanation, view: View) -> Section:
    line = one.entry.line
    return Section(f"{line.account.value}: {line.name}", (), ("", ""), tuple(_steps(one, found, view)))


def _steps(one: Formula, found: Explanation, view: View) -> Iterator[tuple[str, str]]:
    entry, line = one.entry, one.entry.line
    dims = shape_text(line.dims) or "a scalar"
    yield "  dims", f"{dims} = {one.elements:,} elements"
    yield "  bytes", f"{one.elements:,} x {one.bits} bits ({line.dtype.name}) / {BITS_PER_BYTE} = {one.payload:,} B"
    sign = "+" if one.added >= 0 else "-"
    yield "  block", f"{one.payload:,} B {sign} {abs(one.added):,} B = {one.block:,} B: {one.block_why}"
    yield "  copies", f"{entry.copies:,} alive at {found.moment}"
    yield "  total", f"{one.block:,} B x {entry.copies:,} = {entry.bytes:,} B ({view.size(entry.bytes)})"
    yield "  shard", "whole on this rank" if line.shards == 1 else f"1 of {line.shards:,} parts; dims are this rank's"
    yield "  place", line.place.value
    yield "  live", "at every moment" if len(entry.live) == found.moments else ", ".join(entry.live)
    yield "  basis", line.basis.value
    yield "  source", str(line.source)
    if line.why:
        yield "  why", line.why

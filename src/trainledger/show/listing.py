"""Plain tables for lists of names: aligned columns, readable by people and by `awk` alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

GAP = "  "


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A header and rows as text, each column as wide as its widest cell; those numbered in `right` end flush right."""
    table = [header, *rows]
    widths = [max(map(len, cells)) for cells in zip_longest(*table, fillvalue="")]
    lines = []
    for cells in table:
        padded = [
            cell.rjust(width) if position in right else cell.ljust(width)
            for position, (cell, width) in enumerate(zip(cells, widths, strict=False))
        ]
        lines.append(GAP.join(padded).rstrip())
    return "\n".join(lines)

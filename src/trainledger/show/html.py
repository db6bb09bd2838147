"""Sections of an answer as HTML, for notebooks: no script, no style sheet, everything escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from trainledger.show.table import Section


def html(sections: Sequence[Section]) -> str:
    """One `div` with the sections that have something in them."""
    parts = [_section(section) for section in sections if section.text or section.rows]
    return f'<div class="trainledger">{"".join(parts)}</div>'


def _section(section: Section) -> str:
    title = f"<p><b>{escape(section.title)}</b></p>" if section.title else ""
    text = "".join(f"<div>{escape(line)}</div>" for line in section.text)
    if not section.rows:
        return f"{title}{text}"
    head = "".join(f"<th>{escape(name)}</th>" for name in section.header)
    rows = "".join(f"<tr>{_cells(section, row)}</tr>" for row in section.rows)
    return f"{title}{text}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(section: Section, row: tuple[str, ...]) -> str:
    return "".join(
        f'<td style="text-align: {"right" if number in section.right else "left"}">{escape(cell)}</td>'
        for number, cell in enumerate(row)
    )

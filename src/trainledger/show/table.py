"""Sections of an answer, and the two ways to print them: plain columns when piped, styled tables on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import IO

from trainledger.show.listing import columns

BLOCK, PLAIN = "█", "#"
WORD = len("a word or two")  # a column of text is folded to this, no narrower


@dataclass(frozen=True, slots=True)
class Section:
    """A title, lines of text, and a table beneath them. `right`: columns flush right; `strong`: rows set apart.

    A later column without a name holds bars. A row whose first cell starts with a space belongs to the one above it.
    """

    title: str
    text: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    right: tuple[int, ...] = ()
    strong: tuple[int, ...] = ()
    style: str = "bold"


@dataclass(frozen=True, slots=True)
class Screen:
    """Where the answer goes: cells per line, and the character of which bars are made."""

    styled: bool
    width: int
    block: str


def screen_of(stream: IO[str] | None = None) -> Screen:
    """The screen behind a stream (standard output). Piped output is plain and has no limit of width to keep to."""
    from shutil import get_terminal_size

    out = stream or sys.stdout
    styled = bool(getattr(out, "isatty", lambda: False)())
    unicode = (getattr(out, "encoding", None) or "").lower().replace("-", "").startswith("utf")
    return Screen(styled, get_terminal_size().columns, BLOCK if styled and unicode else PLAIN)


def write(sections: Sequence[Section], screen: Screen) -> None:
    """Print the sections that have something in them."""
    full = [section for section in sections if section.text or section.rows]
    if screen.styled:
        _styled(full)
    else:
        _emit("\n\n".join(plain(section) for section in full))


def plain(section: Section) -> str:
    """A section as text: no colour, no boxes, one row a line."""
    parts = [section.title] if section.title else []
    parts.extend(section.text)
    if section.rows:
        first, *rest = section.rows if not any(section.header) else (section.header, *section.rows)
        parts.append(columns(first, rest, section.right))
    return "\n".join(parts)


def _styled(sections: Sequence[Section]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for section in sections:
        if section.title:
            console.print(Text(section.title, style=section.style))
        for line in section.text:
            console.print(Text(line))
        if section.rows and _needed(section) > console.width:  # numbers would be cut off: lines wrap whole
            console.print(Text(plain(replace(section, title="", text=()))), soft_wrap=True)
        elif section.rows:
            table = Table(box=None, pad_edge=False, header_style="dim", show_header=any(section.header))
            for number, name in enumerate(section.header):
                side = number in section.right
                bars = "cyan" if number and not name and any(section.header) else None
                table.add_column(
                    Text(name), justify="right" if side else "left", no_wrap=side, overflow="fold", style=bars
                )
            for number, row in enumerate(section.rows):
                table.add_row(*map(Text, row), style="bold" if number in section.strong else None)
            console.print(table)
        console.print()


def _needed(section: Section) -> int:
    """The narrowest screen, in cells, on which every number of a styled table stands whole."""
    least = [
        tuple(cell if at in section.right else cell[:WORD] for at, cell in enumerate(cells))
        for cells in (section.header, *section.rows)
    ]
    return max(map(len, columns(least[0], least[1:], section.right).splitlines()))


def _emit(text: str) -> None:
    """Print; what the stream's encoding lacks is written as an escape, not an error."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))

"""The page of model states: as columns, Markdown, HTML and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from html import escape

from trainledger.answer.review import Review, Row
from trainledger.show.html import html
from trainledger.show.places import seconds
from trainledger.show.table import Section

Size = Callable[[int], str]
HEADER = ("field", "what", "B/parameter", "on one rank", "whole model", "place")
RIGHT = tuple(map(HEADER.index, ("B/parameter", "on one rank", "whole model")))
STYLE = (
    "body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{border:1px solid #bbb;padding:.3em .6em}"
)
CSV_HEADER = ("field", "what", "bytes_per_parameter", "rank_bytes", "model_bytes", "place")


def sections(found: Review, size: Size) -> Iterator[Section]:
    """The page as sections."""
    yield Section(found.title, (), HEADER, tuple(_cells(one, size) for one in found.rows), RIGHT)
    yield Section("One update of the weights at least", tuple(_updates(found)))
    yield Section("Not counted at all", tuple(f"- {note}" for note in found.uncounted))


def markdown(found: Review, size: Size) -> str:
    """The page in Markdown."""
    lines = [
        f"# {found.title}",
        "",
        _line(HEADER),
        _line(["---:" if at in RIGHT else "---" for at in range(len(HEADER))]),
    ]
    lines += [_line([cell.replace("|", "\\|") for cell in _cells(one, size)]) for one in found.rows]
    for title, rows in (
        ("One update of the weights at least", _updates(found)),
        ("Not counted at all", found.uncounted),
    ):
        shown = [f"- {row}" for row in rows]
        lines += ["", f"## {title}", "", *(shown or ["- nothing that is known"])]
    return "\n".join(lines)


def page(found: Review, size: Size) -> str:
    """The page in HTML, whole."""
    head = f'<meta charset="utf-8"><title>{escape(found.title)}</title><style>{STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body>{html(tuple(sections(found, size)))}</body></html>"


def table(found: Review) -> str:
    """The fields in CSV, sizes in bytes."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for one in found.rows:
        writer.writerow(
            [
                "" if value is None else value
                for value in (one.field, one.value, one.each, one.rank, one.whole, one.place)
            ]
        )
    return out.getvalue().rstrip("\n")


def _cells(one: Row, size: Size) -> tuple[str, ...]:
    each = "" if one.each is None else f"{one.each:.4g}"
    rank, whole = ("" if value is None else size(value) for value in (one.rank, one.whole))
    return (one.field, one.value, each, rank, whole, one.place)


def _updates(found: Review) -> Iterator[str]:
    for one in found.updates:
        time = "not known: no bandwidth is given" if one.seconds is None else seconds(one.seconds)
        yield f"{one.name} ({one.place}): {time}"


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"

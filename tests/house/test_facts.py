"""Rows of facts, as objects: each one that a table leads to has a source, and none constructs without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import pytest

from trainledger.base.sources import Source
from trainledger.show.sources import fact_modules, reachable


@dataclass(frozen=True, slots=True)
class Part:
    """A sample of what a row may be made of."""

    size: int


@dataclass(frozen=True, slots=True)
class Key:
    """A sample of a row that only says when another one applies."""

    when: str
    row: object


@dataclass(frozen=True, slots=True)
class Row:
    """A sample row."""

    part: Part
    source: Source


def sources_of(row: Any) -> tuple[Source, ...]:
    """The sources that a row names, none if it names none."""
    given = getattr(row, "source", None) or getattr(row, "sources", None) or ()
    return given if isinstance(given, tuple) else (given,)


def rows(thing: object) -> Iterator[object]:
    """The outermost dataclass instances in a table. A part of a sourced row rests on the row's source."""
    if isinstance(thing, Mapping):
        for pair in thing.items():
            yield from rows(pair)
    elif isinstance(thing, list | tuple | set | frozenset):
        for value in thing:
            yield from rows(value)
    elif is_dataclass(thing) and not isinstance(thing, type | Source):
        yield thing


def all_rows() -> list[object]:
    """Every row that a name of a module of facts leads to."""
    return [
        row
        for module in fact_modules()
        for name, value in vars(module).items()
        if name[:2] != "__"
        for row in rows(value)
    ]


def rests(row: Any) -> bool:
    """Whether a row names its source, or is only a key (no number of its own) to parts that do."""
    if given := sources_of(row):
        return all(isinstance(one, Source) for one in given)
    values = [getattr(row, field.name) for field in fields(row)]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    parts = [value for value in values if is_dataclass(value)]
    return bool(parts) and not numbers and all(map(rests, parts))


def unsourced(found: list[object]) -> list[str]:
    """The rows that rest on no source and are no part of one that does."""
    parts = {id(part) for row in found if rests(row) for part in reachable(row)}
    return [f"{type(row).__module__}.{type(row).__name__}: {row}"[:200] for row in found if id(row) not in parts]


def test_every_row_has_a_source() -> None:
    found = all_rows()
    assert found
    assert sorted(set(unsourced(found))) == []


def test_a_row_without_a_source_is_found() -> None:
    good = Row(Part(1), Source("A paper", "table 1"))
    assert unsourced(list(rows({"a": (good,)}))) == []
    assert unsourced(list(rows({"named apart": good.part, "row": good}))) == []
    assert unsourced([Key("always", good)]) == []
    assert len(unsourced([Key("always", Part(1))])) == 1
    assert len(unsourced(list(rows({"a": [Part(1)], "b": good})))) == 1


def test_no_row_constructs_without_its_source() -> None:
    for kind in {type(row) for row in all_rows() if sources_of(row)}:
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="source"):
            kind(**{name: None for name in names if name not in ("source", "sources")})


@pytest.mark.parametrize(("title", "where"), [("", "section 1"), ("A paper", " ")])
def test_an_empty_source_does_not_construct(title: str, where: str) -> None:
    with pytest.raises(ValueError, match="source"):
        Source(title, where)

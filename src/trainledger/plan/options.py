"""The plan's free maps (`options`, `env`, `allocator`): every name has a row in facts, every value its kind."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from trainledger.base.problems import Problem, nearest
from trainledger.base.units import parse_count
from trainledger.facts.option_nulls import null_means, null_taken
from trainledger.facts.option_row import AUTO
from trainledger.facts.options import OPTION_MAPS, Kind, Row, find_option, option_names
from trainledger.plan.text import LEAVE_OUT, Path, dotted, shown


def check_options(data: dict[str, Any]) -> Iterator[tuple[Path, Problem | None, Any]]:
    """Go through every entry of every free map of a raw plan.

    Yields (path, problem, value): a Problem when the name has no row or the value is not of its kind, else None with
    the value as the ledger reads it (counts as whole numbers; None: as if the key were left out). Maps that are not
    mappings are left to the schema.
    """
    for place in OPTION_MAPS:
        section, key = place.split(".")
        outer = data.get(section)
        entries = outer.get(key) if isinstance(outer, dict) else None
        if isinstance(entries, dict):
            yield from _entries(place, (section, key), entries, "")


def _entries(
    place: str, path: Path, entries: dict[Any, Any], prefix: str
) -> Iterator[tuple[Path, Problem | None, Any]]:
    names = option_names(place)
    for key, value in entries.items():
        here, name = (*path, str(key)), f"{prefix}{key}"
        row = find_option(place, name)
        outer, dot, inner = str(key).rpartition(".")
        if row is not None and dot:  # nothing would read it
            fix = f"Write {outer}: {{{inner}: {shown(value)}}}."
            yield here, Problem(dotted(here), "a name with a dot in it", "a mapping within the map is read", fix), None
        elif row is not None:
            yield here, *_value(here, row, value)
        elif value is None and null_taken(place, name):
            yield here, None, None
        elif isinstance(value, dict) and any(known.startswith(f"{name}.") for known in names):
            yield from _entries(place, here, value, f"{name}.")
        else:
            near = nearest(name, names)
            fix = (
                f"Did you mean {near}?"
                if near
                else f"Leave it out if it moves no memory; {place} knows {len(names)} names."
            )
            yield (
                here,
                Problem(
                    dotted(here), f"unknown name, value {shown(value)}", "a name whose effect on memory is known", fix
                ),
                None,
            )


def _value(path: Path, row: Row, value: Any) -> tuple[Problem | None, Any]:
    if row.where == "stack.env" and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # an environment holds text: 0 and "0" are the same
    if value is None:
        return _null(path, row)
    read = _read(row.kind, value)
    if read is None and row.kind is not Kind.ANY:
        fix = "Put the value in quotes." if row.kind is Kind.TEXT and isinstance(value, int | float) else ""
        return Problem(dotted(path), shown(value), f"allowed is {row.kind}", fix), None
    return None, read


def _null(path: Path, row: Row) -> tuple[Problem | None, Any]:
    """What null says of an option: what its framework takes it for, else nothing."""
    if null_taken(row.where, row.name):
        return None, null_means(row.where, row.name)
    if row.kind is Kind.ANY:
        return None, None
    return Problem(dotted(path), "null", f"allowed is {row.kind}", LEAVE_OUT), None


def _read(kind: Kind, value: Any) -> Any:
    """The value as its kind reads it, or None when it is of another kind."""
    if kind is Kind.BOOL:
        return value if isinstance(value, bool) else None
    if kind is Kind.AUTO and value == AUTO:
        return AUTO
    if kind in (Kind.COUNT, Kind.AUTO):
        return _count(value)
    if kind is Kind.NUMBER:
        return value if isinstance(value, int | float) and not isinstance(value, bool) and _finite(value) else None
    if kind is Kind.TEXT:
        return value if isinstance(value, str) else None
    if kind is Kind.ANY:
        return value
    if not isinstance(value, list | tuple):
        return None
    items = [_count(item) if kind is Kind.COUNTS else item if isinstance(item, str) else None for item in value]
    return None if any(item is None for item in items) else items


def _finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _count(value: Any) -> int | None:
    if isinstance(value, float) and not value.is_integer():
        return None
    try:
        return parse_count(value)
    except (ValueError, OverflowError, AttributeError, TypeError):
        return None

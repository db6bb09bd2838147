"""The sources of every table, as a page: what stands behind the numbers and which tables rest on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

from trainledger import facts
from trainledger.base.sources import Source

_HEAD = """# Sources

Every number from the world is a row in a table under `src/trainledger/facts/`, and every row names its source.
This page lists the sources and the tables that rest on them. It is generated: `make docs`.
"""


def fact_modules() -> tuple[ModuleType, ...]:
    """Every module of facts, imported, by name."""
    names = sorted(info.name for info in walk_packages(facts.__path__, f"{facts.__name__}."))
    return tuple(import_module(name) for name in names)


def reachable(thing: object) -> Iterator[object]:
    """Every dataclass instance inside a value, through mappings, sequences, sets and fields, itself included."""
    if isinstance(thing, Mapping):
        for value in thing.values():
            yield from reachable(value)
    elif isinstance(thing, list | tuple | set | frozenset):
        for value in thing:
            yield from reachable(value)
    elif is_dataclass(thing) and not isinstance(thing, type):
        yield thing
        for field in fields(thing):
            yield from reachable(getattr(thing, field.name))


def sources_by_title() -> dict[str, dict[str, set[str]]]:
    """Title of a source -> where in it (with its date) -> the fact tables that name it."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for module in fact_modules():
        table = module.__name__.removeprefix(f"{facts.__name__}.")
        for item in reachable({name: value for name, value in vars(module).items() if not name.startswith("__")}):
            if isinstance(item, Source):
                found[item.title][f"{item.where}, {item.date}" if item.date else item.where].add(table)
    return {title: dict(places) for title, places in found.items()}


def sources_markdown() -> str:
    """`docs/sources.md`: one section a source, one line a place in it, with the tables that use it."""
    parts = [_HEAD]
    for title, places in sorted(sources_by_title().items(), key=lambda item: item[0].lower()):
        lines = [f"- {place} — {', '.join(sorted(tables))}" for place, tables in sorted(places.items())]
        parts.append("\n".join([f"## {title}", "", *lines, ""]))
    return "\n".join(parts)

"""Named models. The index of names is light; a vendor's rows are imported when one of them is asked for."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module

from trainledger.base.problems import InputError, Problem
from trainledger.facts.catalogue.entry import Entry
from trainledger.facts.catalogue.index import MODULES

__all__ = ["Entry", "every_entry", "find_model", "names", "search"]

_SHOWN = 5


def names() -> tuple[str, ...]:
    """The name of every model, by vendor, without reading the rows."""
    return tuple(name for known in MODULES.values() for name in known)


@cache
def _rows(module: str) -> tuple[Entry, ...]:
    entries: tuple[Entry, ...] = import_module(f"{__name__}.{module}").ENTRIES
    return entries


def every_entry() -> tuple[Entry, ...]:
    """Every row, in the order of `names()`."""
    return tuple(entry for module in MODULES for entry in _rows(module))


def _bare(text: str) -> str:
    return text.strip().lower()


def find_model(name: str) -> Entry:
    """The row of that name or Hub id, in any case.

    Raises InputError with the nearest names when there is none.
    """
    wanted = _bare(name)
    for module, known in MODULES.items():
        if wanted in known:
            return next(entry for entry in _rows(module) if entry.name == wanted)
    for entry in every_entry():
        if wanted == _bare(entry.hub_id):
            return entry
    raise InputError([_unknown(name)])


def _unknown(name: str) -> Problem:
    known = {alias: entry.name for entry in every_entry() for alias in (entry.name, _bare(entry.hub_id))}
    near = get_close_matches(_bare(name), known, n=_SHOWN)
    offered = dict.fromkeys(known[alias] for alias in near)
    fix = f"Did you mean {' or '.join(offered)}?" if offered else ""
    allowed = "expected a name of the catalogue (trainledger models lists them), a path, or keys in place"
    return Problem("model", f"{name!r} is not a known model", allowed, fix)


def search(text: str) -> list[Entry]:
    """The rows in whose name, Hub id or model_type every word of `text` occurs, in any case; all for no word."""
    words = text.lower().split()
    return [entry for entry in every_entry() if all(word in _searched(entry) for word in words)]


def _searched(entry: Entry) -> str:
    return f"{entry.name} {entry.hub_id} {dict(entry.config)['model_type']}".lower()

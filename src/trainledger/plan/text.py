"""Values and paths as messages show them: short, on one line, whatever they are."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from trainledger.facts.limits import SHOWN

Path = tuple[str | int, ...]
LEAVE_OUT = "Leave the key out, or give it a value."  # of a null that says nothing


def shown(value: object) -> str:
    """A value as a message shows it: `"adamww"`, `4`, `true`, `null`, `a list of 3`, cut to one short line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, dict):
        return f"a mapping of {len(value)}" if value else "an empty mapping"
    if isinstance(value, str):
        return '"' + _cut(value.encode("unicode_escape").decode("ascii") if not value.isprintable() else value) + '"'
    try:
        return _cut(reprlib.repr(value))
    except ValueError:
        return "a number of too many digits"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN.value else text[: SHOWN.value] + "..."


def dotted(path: Iterable[str | int]) -> str:
    """`adapter.targets.0` of ("adapter", "targets", 0)."""
    return ".".join(_cut(str(part)) for part in path)

"""TOML text to plain data with line numbers."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.importers.document import Builder, Document, Path

_TABLE = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")
_LINE = re.compile(r"line (\d+)")


def parse_toml(text: str, name: str) -> Document:
    """The document of a TOML text. Raises InputError with the line for broken TOML."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        where = Builder(name).place(int(found.group(1)) if found else 1)
        message = str(error).partition(" (at ")[0]
        raise InputError(
            [Problem("", f"broken TOML: {message[:1].lower()}{message[1:]}", "TOML is expected", where=where)]
        ) from None
    except RecursionError:
        raise InputError([Problem("", "nested too deeply", "fewer levels are read", where=name)]) from None
    builder = Builder(name)
    builder.places.update(_places(text, builder))
    for path in _paths(data, ()):
        builder.enter(path, 1)
    return builder.finish(data)


def _places(text: str, builder: Builder) -> dict[Path, str]:
    """Where each table and key stands, by a scan of the lines: keys within inline tables have their table's line."""
    found: dict[Path, str] = {}
    table: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := _TABLE.match(line):
            table = _split(match.group(1))
            found.setdefault(table, builder.place(number))
        elif match := _KEY.match(line):
            found.setdefault((*table, *_split(match.group(1))), builder.place(number))
    return found


def _split(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _paths(data: Any, path: Path) -> list[Path]:
    found: list[Path] = [path]
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found += _paths(value, (*path, key))
    return found

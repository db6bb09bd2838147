"""A configuration and what a command line changes in it: flags read into changes, changes laid over a document."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.facts.import_rows import FilledRow, KeyRow, Means
from trainledger.facts.limits import NESTING
from trainledger.facts.versions import at_least
from trainledger.importers.document import Document, Path
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input, read_input
from trainledger.importers.piece import Piece
from trainledger.importers.shell_words import Word
from trainledger.importers.yaml_text import parse_yaml

_GONE = object()
_PLACE = re.compile(r"(.*:\d+) \S+")  # `file:line key`


@dataclass(frozen=True, slots=True)
class Change:
    """A key (dotted) that a command line sets, its value and its place. `known`: no part of it is left to a shell."""

    key: str
    value: Any
    where: str
    known: bool = True


def value_of(text: str) -> Any:
    """What a value on a command line means: YAML's plain values; the text itself where it is none."""
    try:
        found = parse_yaml(text, "").data
    except InputError:
        return text
    return text if text and found is None and text.lower() not in ("null", "none", "~") else found


def shown(value: object) -> str:
    """A value as a problem shows it: printable, and not long."""
    text = f"{value}"
    plain = text if text.isprintable() else ascii(text)[1:-1]
    return plain[:80]


def flags(words: Sequence[Word]) -> Iterator[Change]:
    """`--key value`, `--key=value`, `--key value value` (a list) and `--key` (true); `--no-key` and `--a.no-key` are
    false. Words before the first flag are left out."""
    words = [word for word in words if word.text not in ("$@", "$*")]  # what a script is called with
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.text.startswith("--") or word.text == "--":
            continue
        name, equals, value = word.text.removeprefix("--").partition("=")
        values: list[Word] = [Word(value, word.where, word.known)] if equals else []
        while not equals and at < len(words) and not words[at].text.startswith("--"):
            values.append(words[at])
            at += 1
        yield _flag(name, values, word.where)


def _flag(name: str, values: Sequence[Word], where: str) -> Change:
    known = all(value.known for value in values)
    if not values:
        *front, last = name.split(".")
        if name.startswith("no-") or last.startswith(("no-", "no_")):
            plain = ".".join([*front, last[len("no-") :]]) if last.startswith(("no-", "no_")) else name[len("no-") :]
            return Change(plain.replace("-", "_"), False, where, known)
        return Change(name.replace("-", "_"), True, where, known)
    read = [value_of(value.text) for value in values]
    return Change(name.replace("-", "_"), read[0] if len(read) == 1 else read, where, known)


def overlay(document: Document, changes: Iterable[Change]) -> Document:
    """The document with every change made, in order; mappings on the way are made where there are none."""
    data: Any = document.data if isinstance(document.data, dict) else {}
    places = dict(document.places)
    for change in changes:
        path: Path = tuple(change.key.split("."))
        data = _with(data, path, change.value)
        for known in [one for one in places if one[: len(path)] == path]:
            del places[known]
        places[path] = change.where
    return Document(data, places)


def _with(data: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    held = data if isinstance(data, dict) else {}
    return {**held, path[0]: _with(held.get(path[0]), path[1:], value)}


def referred(document: Document) -> Document:
    """The document with every value `${a.key}` replaced by that key's value; what is no such key stays as it is."""
    return Document(_referred(document.data, document.data, 0), document.places)


def _referred(part: Any, whole: Any, depth: int) -> Any:
    if isinstance(part, dict):
        return {key: _referred(value, whole, depth) for key, value in part.items()}
    if isinstance(part, list):
        return [_referred(value, whole, depth) for value in part]
    if isinstance(part, str) and part.startswith("${") and part.endswith("}") and depth < NESTING.value:
        found: Any = whole
        for key in part[len("${") : -1].split("."):
            found = found.get(key, _GONE) if isinstance(found, dict) else _GONE
        if found is not _GONE and not isinstance(found, dict | list):
            return _referred(found, whole, depth + 1)
    return part


def rows_of(document: Document, rows: Sequence[KeyRow]) -> tuple[KeyRow, ...]:
    """The rows without those of keys that hold a mapping here whose own keys have rows: `compile` beside
    `compile.enable`, which may be either."""
    data = document.data if isinstance(document.data, dict) else {}
    inner = {row.name.partition(".")[0] for row in rows if "." in row.name}
    return tuple(
        row
        for row in rows
        if row.means is not Means.READ or row.name not in inner or not isinstance(data.get(row.name), dict)
    )


def left_to_a_shell(piece: Piece, changes: Iterable[Change], rows: dict[str, KeyRow]) -> None:
    """Refuse every change of a key that is read whose value only a shell would know."""
    for change in changes:
        row = rows.get(change.key)
        if not change.known and row is not None and row.means is Means.READ:
            piece.refuse(
                change.key,
                f"{change.value}",
                "its value is not in the script",
                "Give it: --env NAME=VALUE.",
                change.where,
            )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A configuration that a command names: under which fact an earlier piece holds its format's document, and what to
    do where there is none."""

    fact: str
    fix: str


def config_of(name: Word | None, given: Input, context: Context, wanted: Wanted) -> Document:
    """The document of the configuration that a command names: a file beside it, or one that was given before it; an
    empty one where it names none.

    Raises InputError when there is none.
    """
    if name is None:
        return Document({}, {})
    for base in (given.folder, ""):
        path = os.path.join(base, name.text)
        if "\0" not in path and os.path.isfile(path):
            document = read_input(path).document
            if document is not None:
                return document
    known = context.fact(wanted.fact)
    if isinstance(known, Document):
        return known
    found = f"{shown(name.text)}: no such file here"
    fix = f"{wanted.fix} Name it before this one: trainledger estimate CONFIG SCRIPT."
    raise InputError([Problem("config", found, "the configuration that the command names is needed", fix, name.where)])


def fill(piece: Piece, rows: Iterable[FilledRow], version: str) -> None:
    """Fill what the file leaves out with what this release of the framework has (an unknown one counts as newest)."""
    for row in rows:
        if row.path in piece.given or row.path in piece.filled:
            continue
        if at_least(version, row.since) and not (row.until and at_least(version, row.until)):
            piece.fill(row.path, row.value, row.why, row.source)


def once(piece: Piece, context: Context) -> Piece:
    """The piece without what an earlier piece has listed of the same place already, with one problem for each key."""
    piece.unknown = [one for one in piece.unknown if not any(one in other.unknown for other in context.pieces)]
    piece.uncounted = [one for one in piece.uncounted if not any(one in other.uncounted for other in context.pieces)]
    first: dict[str, Problem] = {}
    for problem in piece.problems:
        match = _PLACE.fullmatch(problem.where)
        first.setdefault(problem.path or problem.found, replace(problem, where=match[1] if match else problem.where))
    piece.problems = list(first.values())
    return piece


def ordinal(number: object) -> str:
    """2nd of 2."""
    text = f"{number}"
    ends = {"1": "st", "2": "nd", "3": "rd"}
    return text + ("th" if text[-len("11") :] in ("11", "12", "13") else ends.get(text[-1:], "th"))

"""Lengths of samples in a file: a whole number a line, a column of a table, a JSON list, or a JSON object a line."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.facts.limits import SEQUENCE
from trainledger.plan.text import shown

KEY = "lengths.file"
NEEDED = "a length a line, a column named length, or a JSON list is needed"
COLUMNS = ("length", "lengths", "tokens", "num_tokens", "n_tokens", "seq_len", "seq_length")
GROUPED = re.compile(r"\d{1,3}(,\d{3})+")  # one number in groups of three, or several: it cannot be told

Cell = tuple[int, str]  # the line's number, and what stands there


def lengths_in(text: str, name: str) -> list[int]:
    """The lengths in the text of a file of this name. Raises InputError, which names the lines that hold none."""
    text = text.removeprefix("\ufeff")
    read = {"[": _listed, "{": _objects}.get(text.lstrip()[:1], _column)
    cells = read(text, name)
    wrong = [(line, word) for line, word in cells if not _is_length(word)]
    if wrong:
        (line, word), *more = wrong
        raise InputError([_problem(f"found {reprlib.repr(word)}{_beside(len(more))}", name, line)])
    if not cells:
        raise InputError([_problem("no lengths", name, 0)])
    return [int(word) for _, word in cells]


def _is_length(word: str) -> bool:
    """Whether it is a number of tokens. Its digits are counted first: Python reads no number of thousands of them."""
    return word.isascii() and word.isdecimal() and len(word) <= len(str(SEQUENCE.value)) and int(word) > 0


def _parsed(text: str, name: str, line: int | None = None) -> Any:
    """JSON's value. Raises InputError with the line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError([_problem(f"no JSON: {error.msg}", name, line or error.lineno)]) from None
    except ValueError:
        raise InputError([_problem("a number of too many digits", name, line or 0)]) from None


def _problem(found: str, name: str, line: int, fix: str = "") -> Problem:
    return Problem(KEY, found, NEEDED, fix, f"{name}:{line}" if line else name)


def _beside(more: int) -> str:
    """How many further places are wrong."""
    return f", and {more:,} more like it" if more else ""


def _listed(text: str, name: str) -> list[Cell]:
    """A JSON list. Its elements' lines are not known: of a wrong one its place is told."""
    data = _parsed(text, name)
    numbers = [(at, one) for at, one in enumerate(data) if type(one) is not int or one < 1]
    if numbers:
        (at, one), *more = numbers
        raise InputError([_problem(f"element {at} is {shown(one)}{_beside(len(more))}", name, 0)])
    return [(0, str(one)) for one in data]


def _objects(text: str, name: str) -> list[Cell]:
    """The number of each line's object that is named for lengths."""
    found: list[Cell] = []
    for at, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        data = _parsed(line, name, at)
        value = next((data[one] for one in COLUMNS if one in data), None) if isinstance(data, dict) else None
        found.append((at, str(value) if type(value) is int else json.dumps(value if value is not None else data)))
    return found


def _column(text: str, name: str) -> list[Cell]:
    """One number a line; of a table with a head the column that is named for lengths."""
    rows = [(at, _cells(line)) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not rows:
        return []
    if len(rows) == 1 and not GROUPED.fullmatch(text.strip()):  # all of them in one line
        return [(rows[0][0], word) for word in rows[0][1]]
    head = [word.lower() for word in rows[0][1]]
    if not any(word[:1].isdigit() or word[:1] in "+-." for word in head if word):
        column = next((head.index(one) for one in COLUMNS if one in head), 0 if len(head) == 1 else None)
        if column is None:
            raise InputError([_problem(f"found {rows[0][1]}", name, rows[0][0])])
        return list(_of_column(rows[1:], column, len(head), name))
    return list(_of_column(rows, 0, 1, name))


def _cells(line: str) -> list[str]:
    return [word.strip().strip("\"'") for word in re.split(r"[,;\t]", line)]


def _of_column(rows: Sequence[tuple[int, list[str]]], column: int, width: int, name: str) -> Iterator[Cell]:
    """The column's cells, of rows that all have as many."""
    wide = [(line, cells) for line, cells in rows if len(cells) != width]
    if wide:
        fix = "Name the columns in a first line, or write one number a line without separators."
        (line, cells), *more = wide
        raise InputError([_problem(f"found {len(cells)} values{_beside(len(more))}", name, line, fix)])
    for line, cells in rows:
        yield line, cells[column]

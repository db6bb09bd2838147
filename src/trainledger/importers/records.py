"""Run records (JSONL): a plan and what a real run of it measured, or one operator and what it measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from trainledger.base.problems import InputError, Problem, wrong
from trainledger.facts.limits import RECORD_LINE
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.json_text import parse_json
from trainledger.importers.plan_file import draft_of
from trainledger.importers.record_days import with_release

METRICS = ("allocated_peak", "reserved_peak", "active_peak", "device_used", "allocated_above_inputs")
RANKS = ("last", "max", "mean", "all")
CONFIDENCES = ("A", "B", "C")
OUTCOMES = ("fits", "oom")
KINDS: dict[type, str] = {str: "text", dict: "a mapping", list: "a list"}


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run showed, in bytes. `size` is None where it ran out of memory; `rounding`: how coarsely it was printed.

    `rank` is a global rank, or last, max (the fullest), mean, all (one value for every rank).
    """

    metric: str
    size: int | None
    rounding: int
    outcome: str
    rank: int | str
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """A run record. `plan` is as given (plain data): `draft()` reads it, so that a bad plan fails by itself."""

    id: str
    plan: Mapping[str, Any]
    measured: Measured
    source: Mapping[str, Any]
    confidence: str
    assumed: tuple[str, ...]
    group: str
    where: str

    def draft(self) -> Draft:
        """The resolved plan. Raises InputError with every problem of the plan."""
        return draft_of(Document(with_release(self.plan, self.source), {(): self.where}))


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """One operator by itself: shapes in elements, and what it measured."""

    id: str
    operator: str
    implementation: str
    shape: Mapping[str, Any]
    dtype: str | None
    passes: str
    measured: Measured
    source: Mapping[str, Any]
    device: Any
    where: str


def read_records(path: str) -> Iterator[Record | OperatorRecord | Problem]:
    """The records of a JSONL file, one line at a time; a line that is none is a Problem with its `file:line`.

    Raises InputError when the file cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            number = held = 0
            while line := stream.readline(RECORD_LINE.value + 1):
                number += 1
                if len(line) > RECORD_LINE.value:
                    yield Problem(
                        "", "a line that is too long", f"at most {RECORD_LINE.value:,} bytes", where=f"{path}:{number}"
                    )
                    return
                if line.strip():
                    held += 1
                    yield read_record(line, f"{path}:{number}")
            if not held:
                yield Problem("", "no records in it", "a run record on each line is needed", where=path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "cannot be read"
        raise InputError([Problem("", f"{path}: {reason}", "a JSONL file of run records")]) from None


def read_record(line: bytes | str, where: str) -> Record | OperatorRecord | Problem:
    """The record of one line, or the problem with it."""
    try:
        text = line.decode("utf-8-sig") if isinstance(line, bytes) else line
        data = parse_json(text, "").data
        if not isinstance(data, dict):
            return Problem("", "a line that is no object", "a record is an object", where=where)
        return _operator(data, where) if "operator" in data and "plan" not in data else _record(data, where)
    except InputError as error:
        first = error.problems[0]
        return Problem(first.path, first.found, first.allowed, first.fix, where)
    except UnicodeDecodeError:
        return Problem("", "not text in UTF-8", "a record is a line of JSON", where=where)


def _record(data: dict[str, Any], where: str) -> Record:
    return Record(
        id=_pick(data, "id", str),
        plan=_pick(data, "plan", dict),
        measured=_measured(_pick(data, "measured", dict)),
        source=_pick(data, "source", dict, {}),
        confidence=_one_of(data, "confidence", CONFIDENCES, "C"),
        assumed=tuple(str(key) for key in _pick(data, "assumed", list, [])),
        group=_pick(data, "group", str, "none"),
        where=where,
    )


def _operator(data: dict[str, Any], where: str) -> OperatorRecord:
    dtype = data.get("dtype")
    return OperatorRecord(
        id=_pick(data, "id", str),
        operator=_pick(data, "operator", str),
        implementation=_pick(data, "implementation", str, ""),
        shape=_pick(data, "shape", dict, {}),
        dtype=dtype if isinstance(dtype, str) else None,
        passes=_pick(data, "pass", str, "forward+backward"),
        measured=_measured(_pick(data, "measured", dict)),
        source=_pick(data, "source", dict, {}),
        device=data.get("device"),
        where=where,
    )


def _measured(data: dict[str, Any]) -> Measured:
    size = data.get("bytes")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise wrong("measured.bytes", "not a number of bytes", "a whole number of bytes, or null")
    rank = data.get("rank", "max")
    if isinstance(rank, bool) or not ((isinstance(rank, int) and rank >= 0) or rank in RANKS):
        raise wrong("measured.rank", str(rank)[:40], f"a rank's number, or one of {', '.join(RANKS)}")
    rounding = data.get("rounding", 1)
    if isinstance(rounding, bool) or not isinstance(rounding, int | float) or not 0 <= rounding < inf:
        raise wrong("measured.rounding", str(rounding)[:40], "a number of bytes")
    metric = _one_of(data, "metric", METRICS, None, "measured.")
    outcome = _one_of(data, "outcome", OUTCOMES, "oom" if size is None else "fits", "measured.")
    return Measured(metric, size, int(rounding), outcome, rank, _pick(data, "extra", dict, {}))


def _pick(data: dict[str, Any], key: str, kind: type, default: Any = None) -> Any:
    value = data.get(key, default)
    if not isinstance(value, kind):
        found = "missing" if key not in data else f"found {str(value)[:40]!r}"
        raise wrong(key, found, f"{KINDS[kind]} is expected")
    return value


def _one_of(data: dict[str, Any], key: str, allowed: tuple[str, ...], default: str | None, above: str = "") -> str:
    value = data.get(key, default)
    if not isinstance(value, str) or value not in allowed:
        raise wrong(above + key, "missing" if value is None else str(value)[:40], f"one of {', '.join(allowed)}")
    return value

"""Measured runs as `--measured` takes them: a file of run records, or amounts and the keys that differed in the run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from trainledger.answer.anchor import METRICS, MeasuredRun
from trainledger.answer.changed import Change
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.base.units import MIB, parse_size
from trainledger.importers.document import Document
from trainledger.importers.records import Record, read_records
from trainledger.importers.sets import apply_sets

OPTION = "--measured"
OF_RECORDS = {"allocated_peak": "allocated", "reserved_peak": "reserved", "device_used": "device"}
SHAPE = f"a file of run records, or such as allocated=9.5GiB,reserved=11GiB,batch.micro_batch=1 ({', '.join(METRICS)})"


def measured_runs(texts: tuple[str, ...], data: Mapping[str, Any]) -> tuple[MeasuredRun, ...]:
    """The runs that these texts name. `data`: the plan's keys as given, of which a run's keys are changes.

    Raises InputError with every problem: no such file, no amount, a size that is none, a run that ran out of memory.
    """
    problems: list[Problem] = []
    runs: list[MeasuredRun] = []
    for text in texts:
        try:
            runs += _of_file(text) if os.path.isfile(text) else [_of_text(text, data)]
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return tuple(runs)


def _of_file(path: str) -> Iterator[MeasuredRun]:
    for found in read_records(path):
        if isinstance(found, Problem):
            raise InputError([found])
        if not isinstance(found, Record):
            continue
        given = found.measured
        sizes = {given.metric: given.size, **given.extra}
        known = {OF_RECORDS[name]: size for name, size in sizes.items() if name in OF_RECORDS and isinstance(size, int)}
        if not known:
            problem = Problem(OPTION, f"{found.id} states no peak", "a run that ended is needed", where=found.where)
            raise InputError([problem])
        yield MeasuredRun(found.id, found.draft().data, (), tuple(known.items()), steps=True)


def _of_text(text: str, data: Mapping[str, Any]) -> MeasuredRun:
    sizes: dict[str, int] = {}
    sets: list[str] = []
    for part in _parts(text):
        name, equals, value = part.partition("=")
        name = name.strip()
        if name in METRICS:
            sizes[name] = _size(name, value)
        elif equals and "." in name:
            sets.append(f"{name}={value}")
        else:
            near = nearest(name, METRICS)
            raise InputError([Problem(OPTION, f"found {part!r}", SHAPE, f"Did you mean {near}?" if near else "")])
    if not sizes:
        raise InputError([Problem(OPTION, f"found {text!r}", SHAPE, "Name an amount that the run showed.")])
    changed = apply_sets(Document(dict(data), {}), sets).data
    changes = tuple(Change(one.partition("=")[0], _value(changed, one.partition("=")[0])) for one in sets)
    return MeasuredRun(text, data, changes, tuple(sizes.items()))


def _parts(text: str) -> Iterator[str]:
    """What commas part, those in brackets aside: a list is one value."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _value(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data[key.strip()]
    return data


def _size(name: str, value: str) -> int:
    try:
        size = parse_size(value)
        if size < MIB:
            raise ValueError
        return size
    except (ValueError, OverflowError):
        raise InputError(
            [Problem(OPTION, f"{name}={value}", "a size of 1 MiB or more is needed, such as 9.5GiB, 10200MiB or bytes")]
        ) from None

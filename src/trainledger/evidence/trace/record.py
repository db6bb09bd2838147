"""What a trace hands over: births of storages with what is known of each, and their order, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class Birth(NamedTuple):
    """A storage as it was born: bytes asked for, account, module path, operation, dtype and shape of its tensor."""

    size: int
    account: str
    module: str
    op: str
    dtype: str
    shape: tuple[int, ...]
    stream: int = 0


class Stretch(NamedTuple):
    """Events of one moment: a birth's number plus one where it is born, its negative where it dies."""

    moment: str
    events: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """A value that the code asked a tensor for, and what it was told: operation, module, value, how often."""

    op: str
    module: str
    value: str
    count: int


@dataclass(frozen=True, slots=True)
class Record:
    """A whole trace. `kernels`: calls by attention kernel; `answers`: see Answered; `notes`: what a reader should know;
    `versions`: of the packages that ran; `parameters`: all, trained."""

    births: tuple[Birth, ...]
    stretches: tuple[Stretch, ...]
    kernels: Mapping[str, int] = field(default_factory=dict)
    answers: tuple[Answered, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[int, int] = (0, 0)
    seconds: Mapping[str, float] = field(default_factory=dict)


def as_data(record: Record) -> dict[str, Any]:
    """The record as JSON values."""
    return {
        "births": [list(birth) for birth in record.births],
        "stretches": [list(stretch) for stretch in record.stretches],
        "kernels": dict(record.kernels),
        "answers": [asdict(answer) for answer in record.answers],
        "notes": list(record.notes),
        "versions": dict(record.versions),
        "parameters": list(record.parameters),
        "seconds": dict(record.seconds),
    }


def from_data(data: Mapping[str, Any]) -> Record:
    """The record of `as_data`. Raises KeyError, TypeError or ValueError for anything else."""
    return Record(
        births=tuple(_birth(*birth) for birth in data["births"]),
        stretches=tuple(Stretch(moment, tuple(events)) for moment, events in data["stretches"]),
        kernels=dict(data["kernels"]),
        answers=tuple(Answered(**answer) for answer in data["answers"]),
        notes=tuple(data["notes"]),
        versions=dict(data["versions"]),
        parameters=(data["parameters"][0], data["parameters"][1]),
        seconds=dict(data["seconds"]),
    )


def _birth(size: int, *rest: Any) -> Birth:
    account, module, op, dtype, shape, stream = rest
    return Birth(size, account, module, op, dtype, tuple(shape), stream)

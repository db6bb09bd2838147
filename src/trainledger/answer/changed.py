"""A plan with some of its keys changed: the keys as they were given, the changes, and every default anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainledger.plan.problems import known_paths
from trainledger.plan.read import read_plan
from trainledger.plan.resolve import resolve
from trainledger.plan.schema import Plan

Data = Mapping[str, Any]
WHOLE = ("model", "stack.recompute", "device")  # read as one value
SECTIONS = ("adapter", "quantization", "precision.fp8")  # a plan has them or not


class LeftOut:
    """The value of a key that is not given."""

    def __repr__(self) -> str:
        return "left out"


LEFT_OUT: Final = LeftOut()


@dataclass(frozen=True, slots=True)
class Change:
    """A key of the plan (dotted) and its value; LEFT_OUT takes the key out, so that its default counts."""

    path: str
    value: object


def planned(data: Data, changes: Iterable[Change] = ()) -> Plan:
    """The resolved plan of given keys with these changes. Raises InputError with every problem of the plan's keys."""
    plan, _ = resolve(read_plan(with_changes(data, changes)))
    return plan


def with_changes(data: Data, changes: Iterable[Change]) -> dict[str, Any]:
    """Given keys with the changes made, in order; the mapping itself is left as it is."""
    made = dict(data)
    for change in changes:
        made = _put(made, tuple(change.path.split(".")), change.value)
    return made


def _put(data: Any, path: tuple[str, ...], value: object) -> dict[str, Any]:
    held = dict(data) if isinstance(data, Mapping) else {}
    key, *rest = path
    if rest:
        inner = _put(held.get(key), tuple(rest), value)
        if inner or key in held:
            held[key] = inner
    elif isinstance(value, LeftOut):
        held.pop(key, None)
    else:
        held[key] = value
    return held


def value_of(data: Data, path: str) -> object:
    """The value of a dotted key; LEFT_OUT where it is not given."""
    part: Any = data
    for key in path.split("."):
        if not isinstance(part, Mapping) or key not in part:
            return LEFT_OUT
        part = part[key]
    return part


def leaves(data: Data, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every key (dotted) with its value. What is read as one value (the model, the device, recompute) is one."""
    for key, value in data.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and path not in WHOLE:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def differing(first: Data, second: Data) -> tuple[str, ...]:
    """Keys (dotted) whose values differ, those that only one has included, in the order of the plan's format.

    A section that only one has is one key.
    """
    paths = dict.fromkeys(path for data in (first, second) for path, _ in leaves(data))
    for section in SECTIONS:
        if not all(isinstance(value_of(data, section), Mapping) for data in (first, second)):
            held = [path for path in paths if path == section or path.startswith(f"{section}.")]
            paths = {path: None for path in paths if path not in held} | dict.fromkeys([section] if held else [])
    found = [path for path in paths if _told(first, path) != _told(second, path)]
    order = {path: number for number, path in enumerate(known_paths())}
    last = len(order)
    return tuple(sorted(found, key=lambda path: (order.get(path, order.get(path.rpartition(".")[0], last)), path)))


def _told(data: Data, path: str) -> object:
    """A key's value; an optional section that is null is one that is left out."""
    found = value_of(data, path)
    return LEFT_OUT if found is None and path in (*SECTIONS, *WHOLE) else found

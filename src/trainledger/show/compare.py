"""A comparison as sections of text, and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trainledger.answer.changed import LEFT_OUT
from trainledger.answer.compare import Comparison, Key, Row, Side, Step
from trainledger.facts.limits import SHOWN
from trainledger.show.document import plain_value
from trainledger.show.estimate import OUTCOMES, View, shown_value
from trainledger.show.table import Section

PAIR = ("first", "second")


def sections(found: Comparison, view: View) -> tuple[Section, ...]:
    """Everything that `compare` prints."""
    return (
        _verdicts(found.sides, view),
        _table("Amounts at each plan's peak, expected", found.amounts, found, view),
        _table("Accounts, each plan at its own peak", found.accounts, found, view),
        _table("Moments, each at its largest", found.moments, found, view),
        _table("Places", found.places, found, view),
        _keys(found),
        *_walks(found, view),
    )


def document(found: Comparison) -> dict[str, Any]:
    """What `compare --json` prints: sizes in bytes, `deltas` against the first plan."""
    return {
        "plans": [_side(side) for side in found.sides],
        **{
            name: [{"name": row.name, "bytes": list(row.values), "deltas": list(row.deltas)} for row in rows]
            for name, rows in (
                ("amounts", found.amounts),
                ("accounts", found.accounts),
                ("moments", found.moments),
                ("places", found.places),
            )
        },
        "keys": [
            {"path": key.path, "values": [_value(one) for one in key.values], "given": key.given} for key in found.keys
        ],
        "order": found.order,
        "steps": [{"to": walk.to, "steps": [_step(step) for step in walk.steps]} for walk in found.walks],
    }


def _side(side: Side) -> dict[str, Any]:
    peak = side.answer.peak
    return {"name": side.name, "moment": peak.moment, "verdict": side.answer.verdict.to_dict()}


def _step(step: Step) -> dict[str, Any]:
    return {
        "keys": [{"path": path, "from": _value(old), "to": _value(new)} for path, old, new in step.keys],
        "followed": [{"path": path, "from": _value(old), "to": _value(new)} for path, old, new in step.followed],
        "allocated": step.allocated,
        "reserved": step.reserved,
        "moment": {"from": step.moments[0], "to": step.moments[1]},
        "accounts": dict(step.accounts),
        "outcome": step.verdict.outcome,
    }


def _value(value: object) -> object:
    """A key's value as JSON has it; a key that is left out is null, as in the plan's own format."""
    return None if value is LEFT_OUT else plain_value(value)


def _verdicts(sides: Sequence[Side], view: View) -> Section:
    rows = tuple(
        (
            _letter(number),
            OUTCOMES[side.answer.verdict.outcome][0],
            "-" if side.answer.verdict.margin is None else view.size(side.answer.verdict.margin),
            side.answer.peak.moment,
            side.name,
        )
        for number, side in enumerate(sides)
    )
    return Section("Plans", (), ("", "verdict", "margin", "peak at", "plan"), rows, (2,))


def _letter(number: int) -> str:
    """A, B, C ...; numbers past the alphabet."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[number] if number < len(letters) else f"{number + 1}"


def _table(title: str, rows: Sequence[Row], found: Comparison, view: View) -> Section:
    names = [_letter(number) for number in range(len(found.sides))]
    pair = len(names) == len(PAIR)
    header = ("", *names, *(("B less A",) if pair else ()))
    shown = tuple(
        (
            row.name,
            *("-" if value is None else view.size(value) for value in row.values),
            *((signed(row.deltas[-1], view),) if pair else ()),
        )
        for row in rows
    )
    return Section(title, (), header, shown, tuple(range(1, len(header))))


def signed(size: int, view: View) -> str:
    """A difference in bytes with its sign."""
    return f"+{view.size(size)}" if size > 0 else view.size(size) if size else "0"


def _keys(found: Comparison) -> Section:
    names = [_letter(number) for number in range(len(found.sides))]
    rows = tuple((key.path, *map(short, _cells(key)), "" if key.given else "default") for key in found.keys)
    return Section("Keys that differ", (), ("key", *names, "from"), rows)


def _cells(key: Key) -> tuple[object, ...]:
    """A key's values; of a model its name, or the keys in which it differs from the first."""
    if key.path != "model":
        return key.values
    return tuple(_model(value, key.values[0]) for value in key.values)


def _model(value: object, first: object) -> object:
    if not isinstance(value, dict) or not isinstance(first, dict):
        return value
    name = value.get("name")
    if name and name != first.get("name"):
        return name
    own = {part: held for part, held in value.items() if first.get(part) != held}
    return own or name or value.get("model_type")


def short(value: object) -> str:
    """A value on one line, cut where it is long."""
    if value is LEFT_OUT:
        return "-"
    text = shown_value(value) if not isinstance(value, dict) else ", ".join(f"{k} {v}" for k, v in value.items())
    return text if len(text) <= SHOWN.value else f"{text[: SHOWN.value]}..."


def _walks(found: Comparison, view: View) -> Iterator[Section]:
    for number, walk in enumerate(found.walks, 1):
        rows: list[tuple[str, ...]] = []
        for step in walk.steps:
            rows.extend(_rows_of(step, view))
        title = f"From A to {_letter(number)}, one difference at a time, {found.order}"
        header = ("difference", "allocated", "reserved", "peak at", "verdict", "most of it")
        yield Section(title, (), header, tuple(rows), (1, 2))


def _rows_of(step: Step, view: View) -> Iterator[tuple[str, ...]]:
    most = ", ".join(f"{name} {signed(size, view)}" for name, size in step.accounts[: len(PAIR)])
    moments = step.moments[1] if step.moments[0] != step.moments[1] else "same"
    cells = (
        signed(step.allocated, view),
        signed(step.reserved, view),
        moments,
        OUTCOMES[step.verdict.outcome][0],
        most,
    )
    first, *others = [_told(path, old, new) for path, old, new in step.keys]
    yield (first, *cells)
    blank = tuple("" for _ in cells)
    yield from ((f"  with {one}", *blank) for one in others)
    yield from ((f"  then {_told(path, old, new)}", *blank) for path, old, new in step.followed)


def _told(path: str, old: object, new: object) -> str:
    if path == "model":
        return f"model: {short(_model(old, new))} -> {short(_model(new, old))}"
    return f"{path}: {short(old)} -> {short(new)}"

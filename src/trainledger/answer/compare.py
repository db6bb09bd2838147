"""Plans side by side: what each holds, by account, moment and place; what differs, and what each difference moved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from trainledger.answer.changed import Change, Data, differing, leaves, planned, value_of, with_changes
from trainledger.answer.disk import Elsewhere, elsewhere
from trainledger.answer.estimate import Estimate, device_of, estimate
from trainledger.answer.tables import by_account, entries, moment_of
from trainledger.answer.verdict import Verdict
from trainledger.base.problems import InputError, Problem
from trainledger.facts.devices import find_device
from trainledger.plan.problems import touches
from trainledger.plan.schema import as_mapping

Report = Callable[[int, int], None]  # estimates done, estimates expected
LAYERS = re.compile(r"of layers? [\d ,to-]+")  # plans of other depths have other layers at their peaks
ORDER = "in the order of the plan's format, each on top of those before it"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the plans: its name, its keys as given, its estimate, and what lies elsewhere."""

    name: str
    data: Data
    answer: Estimate
    elsewhere: Elsewhere


@dataclass(frozen=True, slots=True)
class Row:
    """One number of every side, in bytes (None: that side has no such thing), and what each differs from the first."""

    name: str
    values: tuple[int | None, ...]
    deltas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the resolved plans that differs: every side's value, and whether any side gives it."""

    path: str
    values: tuple[object, ...]
    given: bool


@dataclass(frozen=True, slots=True)
class Step:
    """Keys changed together (one, where that makes a plan), defaults that followed, and what it moved, in bytes."""

    keys: tuple[tuple[str, object, object], ...]
    followed: tuple[tuple[str, object, object], ...]
    allocated: int
    reserved: int
    moments: tuple[str, str]
    accounts: tuple[tuple[str, int], ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Walk:
    """From the first plan to another, one difference at a time; what the steps moved adds up to the whole."""

    to: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Plans side by side. Rows are in bytes, expected values; every row has one value for each side."""

    sides: tuple[Side, ...]
    amounts: tuple[Row, ...]
    accounts: tuple[Row, ...]
    moments: tuple[Row, ...]
    places: tuple[Row, ...]
    keys: tuple[Key, ...]
    walks: tuple[Walk, ...]
    order: str = ORDER


def compare(plans: Sequence[tuple[str, Data]], report: Report | None = None) -> Comparison:
    """Two or more plans, each a name and its keys as given, against the first. Raises InputError for fewer than two,
    and for a plan that cannot be estimated, naming it."""
    if len(plans) < len(("first", "second")):
        raise InputError([Problem("", f"found {len(plans)} plan", "two plans or more are compared", "Name another.")])
    sides = tuple(_side(name, data) for name, data in plans)
    walks = []
    for side in sides[1:]:
        walks.append(Walk(side.name, _walk(sides[0], side, report)))
    accounts, moments = [_accounts(side.answer) for side in sides], [_moments(side.answer) for side in sides]
    amounts, places = [_amounts(side.answer) for side in sides], [_places(side) for side in sides]
    return Comparison(
        sides, _rows(amounts), _rows(accounts, True), _rows(moments), _rows(places), _keys(sides), tuple(walks)
    )


def on_devices(data: Data, devices: Iterable[str]) -> tuple[tuple[str, Data], ...]:
    """The plan once for each device, named by it. Raises InputError for an unknown device."""
    found = dict.fromkeys(find_device(name, "--devices").name for name in devices)
    return tuple((name, {**data, "device": {"name": name}}) for name in found)


def _side(name: str, data: Data) -> Side:
    try:
        answer = estimate(planned(data))
    except InputError as error:
        raise InputError([replace(one, where=one.where or name) for one in error.problems]) from None
    return Side(name, data, answer, elsewhere(answer))


def _rows(tables: Sequence[dict[str, int | None]], largest_first: bool = False) -> tuple[Row, ...]:
    names = dict.fromkeys(name for table in tables for name in table)
    rows = []
    for name in names:
        values = tuple(table.get(name) for table in tables)
        rows.append(Row(name, values, tuple((value or 0) - (values[0] or 0) for value in values)))
    if largest_first:
        rows.sort(key=lambda row: -max(value or 0 for value in row.values))
    return tuple(rows)


def _amounts(answer: Estimate) -> dict[str, int | None]:
    device = device_of(answer.plan)
    return {
        "allocated": answer.peak.allocated.expected,
        "reserved": answer.peak.reserved.expected,
        "device": answer.device.expected,
        "device, high end": answer.device.high,
        "usable": device.usable_bytes if device else None,
        "margin": answer.verdict.margin,
    }


def _accounts(answer: Estimate) -> dict[str, int | None]:
    return {row.account.value: row.bytes for row in by_account(entries(answer.ledger, moment_of(answer)))}


def _moments(answer: Estimate) -> dict[str, int | None]:
    """Every moment, those of layers as one, at its largest."""
    found: dict[str, int | None] = {}
    for moment in answer.ledger.moments:
        name = LAYERS.sub("of the layers", moment.name)
        found[name] = max(found.get(name) or 0, moment.allocated)
    return found


def _places(side: Side) -> dict[str, int | None]:
    return {
        "device": side.answer.peak.allocated.expected,
        "host": side.elsewhere.host,
        "disk: checkpoint": side.elsewhere.checkpoint,
        "disk: weights only": side.elsewhere.weights_only,
    }


def _keys(sides: Sequence[Side]) -> tuple[Key, ...]:
    plans = [as_mapping(side.answer.plan) for side in sides]
    paths = dict.fromkeys(path for plan in plans[1:] for path in differing(plans[0], plan))
    given = {path for side in sides for path, _ in leaves(side.data)}
    return tuple(
        Key(path, tuple(value_of(plan, path) for plan in plans), any(touches(path, one) for one in given))
        for path in paths
    )


def _walk(first: Side, last: Side, report: Report | None) -> tuple[Step, ...]:
    """Every difference of given keys in turn. Keys that make no plan by themselves go together with the next one that
    makes one of them."""
    waiting = list(differing(first.data, last.data))
    held, before, steps, every = first.data, first.answer, list[Step](), len(waiting)
    while waiting:
        group, after = _next(held, waiting, last)
        changes = [_change(path, last.data) for path in group]
        data = last.data if len(group) == len(waiting) else with_changes(held, changes)
        told = as_mapping(before.plan) != as_mapping(after.plan)  # a key left out may have its value by default
        keys = tuple((path, value_of(held, path), value_of(last.data, path)) for path in group)
        steps += [_step(keys, before, after)] if told else []
        held, before = data, after
        waiting = [path for path in waiting if path not in group]
        if report is not None:
            report(every - len(waiting), every)
    return tuple(steps)


def _change(path: str, data: Data) -> Change:
    return Change(path, value_of(data, path))


def _next(held: Data, waiting: Sequence[str], last: Side) -> tuple[tuple[str, ...], Estimate]:
    """The first keys that make a plan together: one, or one and another, or all up to one; at last what is left."""
    for end in range(1, len(waiting)):
        head = tuple(waiting[:end])
        for group in (head, *((*head, other) for other in waiting[end:])):
            if len(group) == len(waiting):
                return group, last.answer
            try:
                return group, estimate(planned(held, [_change(path, last.data) for path in group]))
            except Exception:  # a mixture that no run has may be beyond the ledger, too
                continue
    return tuple(waiting), last.answer


def _step(keys: tuple[tuple[str, object, object], ...], before: Estimate, after: Estimate) -> Step:
    own = [path for path, _, _ in keys]
    plans = as_mapping(before.plan), as_mapping(after.plan)
    followed = tuple(
        (path, value_of(plans[0], path), value_of(plans[-1], path))
        for path in differing(*plans)
        if not any(touches(path, one) for one in own)
    )
    rows = _rows([_accounts(before), _accounts(after)])
    moved = sorted(((row.name, row.deltas[-1]) for row in rows if row.deltas[-1]), key=lambda one: -abs(one[1]))
    return Step(
        keys,
        followed,
        after.peak.allocated.expected - before.peak.allocated.expected,
        after.peak.reserved.expected - before.peak.reserved.expected,
        (before.peak.moment, after.peak.moment),
        tuple(moved),
        after.verdict,
    )

"""What each knob of `fit` changes in a plan, and the choices in order where they are no plain range of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import lcm

from trainledger.answer.changed import LEFT_OUT, Change, Data, planned
from trainledger.answer.estimate import device_of
from trainledger.answer.fit_search import Span
from trainledger.answer.unfrozen import last_layers, paths_of, unfrozen, whole_model
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.catalogue import every_entry
from trainledger.facts.catalogue.entry import Entry
from trainledger.facts.devices import DEVICES
from trainledger.facts.fit_knobs import KNOBS, LADDERS, LEARNED_POSITIONS, POSITIONS, Knob
from trainledger.model.build import model_of
from trainledger.plan.degrees import accumulation, degrees
from trainledger.plan.schema import Plan

VENDOR = "NVIDIA"  # whose devices are tried where the plan names none that is known
HALVES = ("first", "second")  # context parallelism cuts a sequence into two parts a rank


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a knob, and the keys that make it."""

    value: int | str
    changes: tuple[Change, ...]


def numbered(plan: Plan, knob: Knob, value: int) -> tuple[Change, ...]:
    """The changes that set a knob of whole numbers. A micro-batch leaves accumulation as it is."""
    if knob is Knob.LAYERS_UNFROZEN:
        return (last_layers(plan, value),)
    own = Change(KNOBS[knob].path, value)
    if knob is Knob.MICRO_BATCH:
        return (own, Change("batch.global", LEFT_OUT), Change("batch.accumulation", accumulation(plan)))
    tokens = plan.batch.loss_tokens
    if knob is Knob.SEQUENCE and tokens is not None and tokens > value:
        return (own, Change("batch.loss_tokens", value))
    return (own,)


def span_of(plan: Plan, knob: Knob) -> Span:
    """The values of a knob of whole numbers. Raises InputError where the plan has no such key."""
    row, model = KNOBS[knob], model_of(plan)
    if knob is Knob.MICRO_BATCH:
        return Span(row.step, row.high, row.step, plan.batch.micro_batch)
    if knob is Knob.SEQUENCE:
        ranks = degrees(plan)
        step = lcm(row.step, ranks.tp * ranks.cp * len(HALVES))
        learned = any(part in weight.name for weight in model.embeddings for part in LEARNED_POSITIONS)
        high = positions(plan) if learned and positions(plan) else row.high
        return Span(min(step, high), high, step, plan.batch.sequence)
    if knob is Knob.LAYERS_UNFROZEN:
        layers = len(paths_of(whole_model(plan)))
        return Span(row.step, layers, row.step, max(unfrozen(plan), row.step))
    adapter = plan.adapter
    if adapter is None or adapter.r is None:
        raise InputError([Problem("adapter.r", "not given", "a rank is looked for in a plan that has an adapter's")])
    return Span(row.step, model.hidden.size, row.step, adapter.r)


def positions(plan: Plan) -> int:
    """The positions that the model's keys state; 0 where they state none."""
    found = [value for name in POSITIONS if isinstance(value := plan.keys().get(name), int)]
    return found[0] if found else 0


def choices(data: Data, plan: Plan, knob: Knob, family: str = "") -> tuple[Choice, ...]:
    """The values of a knob that is no range, in the order in which they are tried: the best answer first."""
    if knob is Knob.MODEL:
        return tuple(_models(plan, family))
    if knob is Knob.DEVICE:
        return tuple(_devices(plan))
    if knob is Knob.DEVICES:
        return tuple(_worlds(plan))
    return tuple(_degrees(data, plan, knob))


def _models(plan: Plan, family: str) -> Iterator[Choice]:
    """Models of the same type (or whose name begins with the family's), the largest first."""
    kind = plan.keys().get("model_type")
    entries = [entry for entry in every_entry() if _of_family(entry, kind, family)]
    if not entries:
        names = sorted({entry.name.partition("-")[0] for entry in every_entry()})
        near = nearest(family, names)
        fix = f"Did you mean {near}?" if near else "`trainledger models` lists them."
        found = f"no model {family}" if family else f"no model of type {kind!r}"
        raise InputError([Problem("--family", found, "a family of the catalogue is needed", fix)])
    for entry in sorted(entries, key=lambda one: (-(one.parameters or 0), one.name)):
        yield Choice(entry.name, (Change("model", {**entry.keys(), "name": entry.name}),))


def _of_family(entry: Entry, kind: object, family: str) -> bool:
    if family:
        return entry.name.startswith(family.strip().lower())
    return dict(entry.config).get("model_type") == kind


def _devices(plan: Plan) -> Iterator[Choice]:
    """Devices of the same vendor, the smallest first."""
    own = device_of(plan)
    vendors = {one.vendor for one in DEVICES.values()}
    vendor = own.vendor if own and own.vendor in vendors else VENDOR
    for one in sorted(DEVICES.values(), key=lambda device: (device.usable_bytes, device.name)):
        if one.vendor == vendor:
            yield Choice(one.name, (Change("device", {"name": one.name}),))


def _worlds(plan: Plan) -> Iterator[Choice]:
    """Numbers of devices: data-parallel replicas of the plan's other degrees, the fewest first."""
    ranks = degrees(plan)
    inner = ranks.tp * ranks.cp * ranks.pp
    last = 0
    for stretch in LADDERS.devices:
        for replicas in range(last + stretch.step, stretch.last + 1, stretch.step):
            yield Choice(replicas * inner, _spread(plan, {"world": replicas * inner}))
        last = stretch.last


def _degrees(data: Data, plan: Plan, knob: Knob) -> Iterator[Choice]:
    """Degrees that divide the ranks which the other axes leave, the smallest first; the number of ranks is kept."""
    ranks, name = degrees(plan), KNOBS[knob].path.rpartition(".")[-1]
    own = getattr(ranks, name)
    room = ranks.dp * ranks.cp if knob is Knob.EP else ranks.dp * own
    for degree in range(1, room + 1):
        if room % degree == 0:
            changed = {name: degree} if knob is Knob.EP else {name: degree, "world": ranks.world}
            try:
                planned(data, made := _spread(plan, changed, keep=knob is Knob.EP))
            except InputError:
                continue
            yield Choice(degree, made)


def _spread(plan: Plan, given: Mapping[str, int], keep: bool = False) -> tuple[Change, ...]:
    """Degrees set, with those that follow from them left to follow; accumulation stays as it is."""
    made = [Change(f"parallel.{name}", value) for name, value in given.items()]
    if keep:
        return tuple(made)
    made += [Change("parallel.dp", LEFT_OUT), Change("batch.global", LEFT_OUT)]
    made.append(Change("batch.accumulation", accumulation(plan)))
    return (*made, *(() if plan.parallel.strategy == "hsdp" else (Change("parallel.shard", LEFT_OUT),)))

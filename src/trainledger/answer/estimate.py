"""The estimate of a plan: the fullest rank's ledger, its peak in three amounts, the verdict, what was assumed."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.answer.check import check, check_model
from trainledger.answer.notes import Notes, notes_of
from trainledger.answer.verdict import Verdict, judge
from trainledger.facts.allocator import CUDA
from trainledger.facts.device_rows import Device
from trainledger.facts.devices import device_from
from trainledger.facts.overheads import Interval, communicators, context, reserved_over_allocated
from trainledger.ledger.rank import Ledger, payload, rank_ledger
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import Moment
from trainledger.model.build import build
from trainledger.model.counts import active, total, trainable
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees, global_batch
from trainledger.plan.schema import Plan

INIT = "init"
UNKNOWN = ("", "unknown")  # what a device of the user's own says of its architecture
REFERENCE = "sm80"  # the architecture whose kernels are assumed where the plan names no device


@dataclass(frozen=True, slots=True)
class Band:
    """An amount in bytes with its interval: low <= expected <= high."""

    low: int
    expected: int
    high: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest moment in three amounts. `active` is allocated: nothing here waits for another stream."""

    moment: str
    allocated: Band
    active: Band
    reserved: Band


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameter counts: all, trained, and those that one token's forward uses."""

    total: int
    trainable: int
    active: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of a plan before it runs. `peak` is over building and steps, `steps` over whole steps only."""

    plan: Plan
    model: Model
    parameters: Parameters
    ledger: Ledger
    peak: Peak
    steps: Peak
    device: Band
    verdict: Verdict
    ranks: int
    global_batch: int
    notes: Notes
    replayed: bool = False  # whether reserved is the allocator's replay of the stream, not a factor

    @property
    def architecture(self) -> str:
        """The architecture whose kernels were counted: the device's, or the reference where the plan names none."""
        return architecture_of(device_of(self.plan))


def estimate(plan: Plan) -> Estimate:
    """The estimate of a resolved plan.

    Raises InputError naming every key that this version cannot estimate, or that the model cannot have.
    """
    check(plan)
    model = build(plan.keys())
    check_model(plan, model)
    device = device_of(plan)
    architecture = architecture_of(device)
    ledger = rank_ledger(plan, model, architecture)
    peak = _peak(plan, ledger, ledger.moments)
    steps = _peak(plan, ledger, tuple(one for one in ledger.moments if one.name != INIT))
    outside = (context(architecture), communicators(degrees(plan).world))
    shown = _shifted(peak.reserved, outside)
    return Estimate(
        plan=plan,
        model=model,
        parameters=Parameters(total(model), trainable(model, plan.trainable), active(model)),
        ledger=ledger,
        peak=peak,
        steps=steps,
        device=shown,
        verdict=_verdict(device, peak, shown, outside),
        ranks=degrees(plan).world,
        global_batch=global_batch(plan),
        notes=notes_of(plan, model, device),
    )


def device_of(plan: Plan) -> Device | None:
    """The plan's device, with its own memory where the plan gives it; None when the plan has none."""
    given = plan.device
    if given is None:
        return None
    return device_from({"name": given.name or "device", "memory": given.memory})


def architecture_of(device: Device | None) -> str:
    """The architecture whose kernels are counted for a device."""
    return device.architecture if device and device.architecture not in UNKNOWN else REFERENCE


def ratio_of(plan: Plan) -> Interval:
    """Reserved over allocated at the peak, for this plan's framework and allocator."""
    return reserved_over_allocated(
        plan.stack.framework, sharded=False, expandable_segments=bool(plan.stack.allocator.get("expandable_segments"))
    )


def largest(moments: tuple[Moment, ...]) -> Moment:
    """The first of the largest moments."""
    return max(moments, key=lambda moment: moment.allocated)


def _peak(plan: Plan, ledger: Ledger, moments: tuple[Moment, ...]) -> Peak:
    moment = largest(moments)
    allocated = _allocated(ledger.lines, moment)
    ratio = ratio_of(plan)
    reserved = Band(
        max(_scaled(allocated.low, ratio.low), allocated.low),
        _scaled(allocated.expected, ratio.expected),
        max(_scaled(allocated.high, ratio.high), allocated.high),
    )
    return Peak(moment.name, allocated, allocated, reserved)


def _scaled(size: int, ratio: float) -> int:
    return round(size * ratio)


def _allocated(lines: tuple[Line, ...], moment: Moment) -> Band:
    """Live bytes. Low: each tensor rounded to a granule. High: each large one with the most that is left unsplit."""
    low = high = 0
    for number, copies in moment.live:
        line = lines[number]
        block = CUDA.rounded(payload(line))
        low += block * copies
        high += max(block + CUDA.remainder if block > CUDA.small else block, line.unit) * copies
    return Band(min(low, moment.allocated), moment.allocated, max(high, moment.allocated))


def _shifted(band: Band, outside: tuple[Interval, ...]) -> Band:
    return Band(
        band.low + round(sum(one.low for one in outside)),
        band.expected + round(sum(one.expected for one in outside)),
        band.high + round(sum(one.high for one in outside)),
    )


def _verdict(device: Device | None, peak: Peak, shown: Band, outside: tuple[Interval, ...]) -> Verdict:
    """The allocator gives back what it caches before it fails: so only live bytes decide that a run cannot fit."""
    usable = device.usable_bytes if device else None
    least = peak.allocated.low + round(sum(one.low for one in outside))
    return judge(usable, min(least, shown.expected), shown.expected, shown.high)


def states_of(ledger: Ledger) -> dict[str, int]:
    """Resident bytes of weights, gradients, master weights and optimizer states: each at its fullest moment."""
    kinds = (Account.WEIGHTS, Account.GRADIENTS, Account.MASTER, Account.OPTIMIZER)
    found = dict.fromkeys((kind.value for kind in kinds), 0)
    for moment in ledger.moments:
        here = dict.fromkeys(found, 0)
        for number, copies in moment.live:
            line = ledger.lines[number]
            if line.account in kinds:
                here[line.account.value] += line.unit * copies
        found = {name: max(size, here[name]) for name, size in found.items()}
    return found

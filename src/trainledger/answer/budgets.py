"""Every budget besides the device's own memory: does it fit, and how long does an update take there at least?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainledger.answer.bands import Band
from trainledger.answer.checkpoint import Checkpoint, checkpoint
from trainledger.answer.host import HostMoment, fullest, host_moments
from trainledger.answer.node import node_of, tiers_of, together
from trainledger.answer.traffic import Traffic, slowest, traffic
from trainledger.answer.verdict import Outcome, Unjudged, Verdict, judge
from trainledger.base.places import Place
from trainledger.base.units import format_size
from trainledger.facts.device_rows import Device, Tier
from trainledger.ledger.rank import Ledger
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

DISK = "disk"
ORDER: tuple[Outcome, ...] = ("fits", "tight", "does-not-fit")
HOLDING: dict[str, str] = {  # places that are judged only where tensors lie there, and how a plan says their size
    Place.ON_CHIP: "device: {tiers: [{place: on-chip, bytes: 256MiB}]}",
    Place.NVME: "node: {nvme: 30TB}",
    Place.REMOTE: "node: {remote: 4TiB}, or device.tiers",
}


@dataclass(frozen=True, slots=True)
class Budget:
    """One memory against what it has to hold: of `shared_by` ranks together, at the moment when that is most.
    `capacity`: bytes, None where nothing says them."""

    place: str
    name: str
    moment: str
    need: Band
    capacity: int | None
    shared_by: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Budgets:
    """Budgets besides the device's, one update's traffic by place, the host's moments, the checkpoint, and how many
    ranks share a node."""

    budgets: tuple[Budget, ...]
    traffic: tuple[Traffic, ...]
    host: tuple[HostMoment, ...]
    checkpoint: Checkpoint
    together: int


def asked(plan: Plan) -> bool:
    """Whether the plan says something of a place besides the device's memory, so that the verdict is of it too."""
    own = plan.device.tiers if plan.device else ()
    return bool(plan.node or plan.save or own or plan.offload.places)


def budgets_of(plan: Plan, model: Model, ledger: Ledger, where: tuple[Device | None, int]) -> Budgets:
    """The budgets of a resolved plan from its fullest rank's ledger; `where`: the device, and how many weights of the
    whole model are trained."""
    device, trainable = where
    tiers = tiers_of(device, node_of(plan))
    written = checkpoint(plan, model, ledger)
    moments = host_moments(plan, model, ledger, written)
    moved = traffic(plan, ledger, trainable, (device, tiers))
    found = [_host(plan, fullest(moments), tiers), *_places(plan, ledger, tiers), *_disk(plan, written)]
    return Budgets(tuple(found), moved, moments, written, together(plan))


def folded(verdict: Verdict, budgets: Sequence[Budget], moved: Sequence[Traffic]) -> Verdict:
    """The device's verdict with those of the other budgets: the worst outcome, each reason under its place's name; none
    where all that can be judged fits, but the device or a place that tensors lie in has no size. The margin stays the
    device's."""
    judged = [one for one in budgets if one.verdict.outcome is not None]
    unjudged = tuple(
        Unjudged(one.place, f"{one.name}, {one.moment}: cannot be judged: {one.verdict.reasons[0]}")
        for one in budgets
        if one.verdict.outcome is None and one.place in HOLDING
    )
    outcomes = [one for one in (verdict.outcome, *(budget.verdict.outcome for budget in judged)) if one is not None]
    worst = max(outcomes, key=ORDER.index, default=None)
    if worst == ORDER[0] and (verdict.outcome is None or unjudged):
        worst = None
    reasons = [one.reason for one in unjudged]
    reasons += [f"device memory: {reason}" for reason in verdict.reasons]
    for one in sorted(judged, key=lambda budget: -ORDER.index(budget.verdict.outcome or ORDER[0])):
        reasons += [f"{one.name}, {one.moment}: {reason}" for reason in one.verdict.reasons]
    reasons += [
        f"an update takes {one.seconds:.3g} s at least: {one.name}"
        for one in slowest(moved)
        if one.seconds is not None and one.place != Place.DEVICE
    ]
    return replace(verdict, outcome=worst, reasons=tuple(reasons), unjudged=(*verdict.unjudged, *unjudged))


def _host(plan: Plan, moment: HostMoment, tiers: Sequence[Tier]) -> Budget:
    tier = next((one for one in tiers if one.place is Place.HOST), None)
    ranks, need = together(plan), moment.band
    capacity = tier.bytes if tier else None
    if tier and plan.node is None:  # a device's own share of a host's memory
        need = Band(*(-(-getattr(need, end) * min(tier.shared_by, ranks) // ranks) for end in _ENDS))
    used = plan.node.used or 0 if plan.node else 0
    room = None if capacity is None else max(capacity - used, 0)
    name = tier.name if tier else "host memory"
    return Budget(Place.HOST, name, moment.name, need, capacity, ranks, _judged(room, need))


_ENDS = ("low", "expected", "high")


def _places(plan: Plan, ledger: Ledger, tiers: Sequence[Tier]) -> Iterator[Budget]:
    """On-chip memory, NVMe and what lies behind a network, where something is put there."""
    for place in (Place.ON_CHIP, Place.NVME, Place.REMOTE):
        size = sum(line.unit * copies for line, copies in ledger.host if line.place is place)
        if not size:
            continue
        tier = next((one for one in tiers if one.place is place), None)
        alone = place is Place.ON_CHIP
        ranks = min(tier.shared_by, degrees(plan).world) if tier else 1 if alone else together(plan)
        need = Band(*(size * ranks for _ in _ENDS))
        name = tier.name if tier else place.value
        capacity = tier.bytes if tier else None
        yield Budget(place, name, "steps", need, capacity, ranks, _judged(capacity, need, HOLDING[place]))


def _disk(plan: Plan, written: Checkpoint) -> Iterator[Budget]:
    capacity = plan.save.disk if plan.save else None
    need = Band(*(written.disk for _ in _ENDS))
    yield Budget(DISK, DISK, f"{written.kept} kept", need, capacity, degrees(plan).world, _judged(capacity, need))


def _judged(room: int | None, need: Band, key: str = "") -> Verdict:
    if room is None:
        told = f"{format_size(need.expected)} lie there; say its size with {key}" if key else "nothing to compare with"
        return Verdict(None, None, (f"its size is not given: {told}",))
    return judge(room, need.low, need.expected, need.high)

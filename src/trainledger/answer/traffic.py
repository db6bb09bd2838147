"""The least time that one update of the weights takes at each place: bytes read and written over the bandwidth there.

An update reads each master weight, each state and each gradient once, and writes master weights, states and the weights
that the next forward reads. What a device and its host exchange for it goes over their link, each way at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainledger.answer.node import together
from trainledger.base.dims import elements
from trainledger.base.places import Place
from trainledger.facts.device_rows import Device, Tier
from trainledger.facts.dtypes import DTYPES
from trainledger.facts.phases import POLICY
from trainledger.ledger.rank import Ledger
from trainledger.ledger.strategy import fsdp_of
from trainledger.lines.line import Account, Duty, Line
from trainledger.lines.moments import OPTIMIZER, what_of
from trainledger.lines.stream import Moment
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

STATES = (Account.MASTER, Account.OPTIMIZER)
LINK = "link"
GRADIENTS_THERE = (Place.NVME, Account.GRADIENTS)
WHOLE = ("none", "ddp", "fsdp1-noshard", "megatron-ddp")  # strategies under which each rank updates every weight


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one update moves at a place, or over the link to the host: bytes that one rank reads and writes, ranks that
    share its bandwidth (bytes per second, None: not known), and the seconds that this takes at least."""

    place: str
    name: str
    read: int
    written: int
    shared_by: int
    bandwidth: int | None

    @property
    def seconds(self) -> float | None:
        """Both ways share a memory's bandwidth; a link has it each way."""
        if not self.bandwidth:
            return None
        moved = max(self.read, self.written) if self.place == LINK else self.read + self.written
        return moved * self.shared_by / self.bandwidth


def traffic(
    plan: Plan, ledger: Ledger, trainable: int, where: tuple[Device | None, Sequence[Tier]]
) -> tuple[Traffic, ...]:
    """One update at every place that takes part in it; `trainable`: trained weights of the whole model; `where`: the
    device and every tier."""
    device, tiers = where
    if not trainable:
        return ()
    lines = resident(ledger)
    update = _Update(plan, lines, {place: _updated(plan, lines, place, trainable) for place in Place})
    found = [_at(plan, place, tiers, moved) for place in Place if any(moved := update.at(place))]
    exchanged = update.exchanged()
    if any(exchanged):
        link = device.link if device else None
        name = link.name if link else "link to the host"
        found.append(Traffic(LINK, name, *exchanged, 1, link.bandwidth if link else None))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Update:
    """An update: what is resident on the rank, and how many elements it updates with states at each place."""

    plan: Plan
    lines: tuple[tuple[Line, int], ...]
    shares: dict[Place, int]

    def states(self, place: Place) -> int:
        """Bytes of master weights and states at a place: each is read once and written once."""
        return sum(
            line.unit * copies
            for line, copies in self.lines
            if line.place is place and line.account in STATES and line.use.duty is not Duty.PASSED
        )

    def at(self, place: Place) -> tuple[int, int]:
        """Bytes read and written. Where the host steps states of NVMe, they pass through its memory both ways, and
        gradients that wait there come once."""
        read = written = self.states(place)
        size = self.stepped_at(place)
        if not on_host(self.plan):
            more = self.parts(place)
            return read + more[0] + self.waiting(place), written + more[1]
        if not size:
            return read + self.waiting(place), written
        own = 0 if self.masters else self.weights(size)
        read, written = read + self.gradients(size, place) + own, written + self.weights(size)
        if place is Place.HOST:
            passing = self.states(Place.NVME)
            read, written = read + passing + passing, written + passing + passing + self.waiting(Place.NVME)
        return read, written

    def parts(self, place: Place) -> tuple[int, int]:
        """Bytes of gradients and weights that an update on the device reads and writes at a place: these lie where the
        plan puts them."""
        size, read, written = self.stepped_at(Place.DEVICE), 0, 0
        where = {str(kind): one for kind, one in self.plan.offload.places.items()}
        if where.get(Account.GRADIENTS, Place.DEVICE) == place:
            read += self.gradients(size, Place.DEVICE)
        if where.get(Account.WEIGHTS, Place.DEVICE) == place:
            read, written = read + (0 if self.masters else self.weights(size)), self.weights(size)
        return read, written

    def waiting(self, place: Place) -> int:
        """Bytes of gradients that a framework keeps on NVMe until the update."""
        if place is not Place.NVME or Account.GRADIENTS in self.plan.offload.places:
            return 0
        return sum(line.unit * copies for line, copies in self.lines if (line.place, line.account) == GRADIENTS_THERE)

    @property
    def masters(self) -> bool:
        """Whether there are master weights."""
        return any(line.account is Account.MASTER for line, _ in self.lines)

    def stepped_at(self, place: Place) -> int:
        """Elements that are updated by arithmetic at a place. Of what a framework steps on the host a part may stay."""
        if not on_host(self.plan):
            return max(self.shares.values()) if place is Place.DEVICE else 0
        if place is Place.DEVICE:
            return self.shares[place] if self.masters else 0
        return self.shares[Place.HOST] or self.shares[Place.NVME] if place is Place.HOST else 0

    def gradients(self, size: int, place: Place) -> int:
        """Bytes of gradients as the update reads them: on the host in the master weights' dtype."""
        precision = self.plan.precision
        kept = precision.master if place is Place.HOST and precision.master else precision.main_gradients
        return DTYPES[kept or precision.gradients].bytes_of(size)

    def weights(self, size: int) -> int:
        """Bytes of weights as the next forward reads them."""
        return DTYPES[self.plan.precision.weights].bytes_of(size)

    def exchanged(self) -> tuple[int, int]:
        """Bytes that the link reads from the host and writes to it: weights up and gradients down where the host steps;
        states up and down where the device steps and they lie beyond it."""
        if on_host(self.plan):
            size = self.stepped_at(Place.HOST)
            return self.weights(size), DTYPES[self.plan.precision.gradients].bytes_of(size)
        far = (Place.HOST, Place.NVME, Place.REMOTE)
        states = sum(self.states(place) for place in far)
        read, written = (sum(found) for found in zip(*(self.parts(place) for place in far), strict=True))
        return states + read, states + written


def last_update(ledger: Ledger) -> Moment:
    """The moment of the trained model's last update; of a ledger without one, its last."""
    steps = (one for one in reversed(ledger.moments) if what_of(one.name) == OPTIMIZER)
    return next(steps, ledger.moments[-1])


def resident(ledger: Ledger) -> tuple[tuple[Line, int], ...]:
    """Lines of the trained model that are alive when its last update is at its largest, and those that lie off the
    device. What roles leave in the host's memory between phases is back by then; other roles are not updated."""
    alive = ((ledger.lines[number], copies) for number, copies in last_update(ledger).live)
    found = (*alive, *ledger.host)
    return tuple(one for one in found if one[0].use.duty is not Duty.PARKED and one[0].role == POLICY)


def _updated(plan: Plan, lines: Sequence[tuple[Line, int]], place: Place, trainable: int) -> int:
    """Elements that this rank updates with states at a place: those of its master weights there; where there are none,
    its share of the trained weights."""
    masters = dict.fromkeys(Place, 0)
    for line, copies in lines:
        if line.account is Account.MASTER:
            masters[line.place] += elements(line.dims) * copies
    if any(masters.values()):
        return masters[place]
    ranks = degrees(plan)
    held = -(-trainable // (ranks.tp * ranks.pp))
    return held if plan.parallel.strategy in WHOLE else -(-held // ranks.shard)


def on_host(plan: Plan) -> bool:
    """Whether a framework steps the optimizer on the host."""
    return plan.offload.optimizer is not None or (bool(fsdp_of(plan)) and plan.offload.params is not None)


def _at(plan: Plan, place: Place, tiers: Sequence[Tier], moved: tuple[int, int]) -> Traffic:
    """Traffic at the first tier of a place, whose bandwidth the ranks on it share."""
    tier = next((one for one in tiers if one.place is place), None)
    alone = place in (Place.DEVICE, Place.ON_CHIP)
    shared = min(tier.shared_by, degrees(plan).world) if tier else 1 if alone else together(plan)
    return Traffic(place.value, tier.name if tier else place.value, *moved, shared, tier.bandwidth if tier else None)


def slowest(found: Sequence[Traffic]) -> Iterator[Traffic]:
    """The one that takes longest, of those whose time is known."""
    known = [one for one in found if one.seconds is not None]
    if known:
        yield max(known, key=lambda one: one.seconds or 0.0)

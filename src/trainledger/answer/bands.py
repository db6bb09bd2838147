"""The three amounts of a peak as bands: live tensors in blocks, what the allocator took, what the device shows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainledger.answer.expert_buffers import expert_buffers
from trainledger.answer.graph_pools import graph_pools
from trainledger.answer.replayed import Replayed
from trainledger.answer.waiting import waiting
from trainledger.base.sources import Basis
from trainledger.facts.allocator import CUDA
from trainledger.facts.default_words import SHARDING
from trainledger.facts.overheads import (
    REPLAYED,
    Interval,
    communicators,
    context,
    libraries,
    peers,
    reserved_over_allocated,
)
from trainledger.facts.overheads import Replayed as Over
from trainledger.ledger.beyond import in_steps
from trainledger.ledger.rank import Ledger, payload
from trainledger.lines.line import Line
from trainledger.lines.stream import Moment
from trainledger.plan.degrees import degrees
from trainledger.plan.groups import groups_of, peers_of
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Band:
    """An amount in bytes with its interval: low <= expected <= high."""

    low: int
    expected: int
    high: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest moment in three amounts. `active`: allocated, and what waits for another stream. `replayed`: the
    amounts are those of a replay on the allocator, not of a sourced ratio. `reserver`: the rank that reserves the most,
    where it is another than the one that holds the most. `spared`: bytes of assumed lines, without which the low ends
    are."""

    moment: str
    allocated: Band
    active: Band
    reserved: Band
    replayed: bool
    reserver: int | None = None
    spared: int = 0

    @property
    def waiting(self) -> int:
        """Expected bytes of blocks that wait for another stream."""
        return self.active.expected - self.allocated.expected

    def reserving(self, most: int) -> Peak:
        """With at most so many bytes reserved, but for the band's high end."""
        own = self.reserved
        return replace(self, reserved=Band(min(own.low, most), min(own.expected, most), own.high))


NOTHING = Ledger((), (), ())  # of a plan whose graphs are not asked for


@dataclass(frozen=True, slots=True)
class Outside:
    """What a process holds on the device beyond what the allocator's replay took: its context, its communicators,
    DeepEP's buffers, what CUDA graphs keep apart."""

    parts: tuple[Interval, ...]

    @classmethod
    def of(cls, architecture: str, plan: Plan, ledger: Ledger) -> Outside:
        """For one rank of the plan on a device of this architecture, with the kernel sets that it loads."""
        links = communicators(degrees(plan).world, len(groups_of(plan)))
        direct = peers(architecture, *peers_of(plan))
        more = (*libraries(plan.stack.kernels), *expert_buffers(plan), *graph_pools(plan, ledger))
        return cls((context(architecture, plan.stack.versions.get("torch", "")), links, *direct, *more))

    def above(self, band: Band) -> Band:
        """A band of the allocator's bytes with what lies outside added."""
        return Band(
            band.low + round(sum(one.low for one in self.parts)),
            band.expected + round(sum(one.expected for one in self.parts)),
            band.high + round(sum(one.high for one in self.parts)),
        )

    def beside(self, usable: int) -> Band:
        """What a device of so many usable bytes leaves the allocator."""
        taken = self.above(Band(0, 0, 0))
        return Band(usable - taken.high, usable - taken.expected, usable - taken.low)


def scaled(size: int, ratio: Interval) -> Band:
    """Bytes times a ratio's low, expected and high."""
    return Band(round(size * ratio.low), round(size * ratio.expected), round(size * ratio.high))


def largest(moments: tuple[Moment, ...]) -> Moment:
    """The first of the largest moments."""
    return max(moments, key=lambda moment: moment.allocated)


def ratio_of(plan: Plan) -> Interval:
    """Reserved over allocated at the peak, for this plan's framework and allocator, where nothing was replayed."""
    expandable = bool(plan.stack.allocator.get("expandable_segments"))
    return reserved_over_allocated(plan.stack.framework, sharded=False, expandable_segments=expandable)


def replayed_over(plan: Plan) -> Over:
    """What runs such as the plan's measured over their replay."""
    return REPLAYED[plan.parallel.strategy in SHARDING]


def peaks_of(plan: Plan, ledger: Ledger, run: Replayed | None) -> tuple[Peak, Peak]:
    """The peak over building and steps, and over whole steps only."""
    steps = tuple(moment for moment in ledger.moments if in_steps(moment.name))
    if run is not None:
        over, late = replayed_over(plan), waiting(plan, ledger)
        whole = _replayed(ledger, ledger.moments, run.most, over)
        return _with_waiting(whole, late), _with_waiting(_replayed(ledger, steps, run.reserved, over), late)
    return _peak(plan, ledger, ledger.moments), _peak(plan, ledger, steps)


def _replayed(ledger: Ledger, moments: tuple[Moment, ...], reserved: int, over: Over) -> Peak:
    moment, spare = largest(moments), spared(ledger.lines, moments)
    allocated = without(scaled(moment.allocated, over.allocated), spare)
    return Peak(moment.name, allocated, allocated, without(scaled(reserved, over.reserved), spare), True, None, spare)


def spared(lines: tuple[Line, ...], moments: tuple[Moment, ...]) -> int:
    """Bytes by which the peak is lower where none of the lines is there whose basis is assumed."""
    assumed = {number: line.unit for number, line in enumerate(lines) if line.basis is Basis.ASSUMED}
    if not assumed:
        return 0
    left = (one.allocated - sum(assumed.get(at, 0) * copies for at, copies in one.live) for one in moments)
    return largest(moments).allocated - max(left)


def without(band: Band, spare: int) -> Band:
    """A band whose low end is lower by so many bytes."""
    return replace(band, low=max(band.low - spare, 0))


def _with_waiting(peak: Peak, late: Interval | None) -> Peak:
    """A peak with blocks that wait for another stream."""
    if late is None:
        return peak
    return replace(peak, active=_more(peak.active, late), reserved=_more(peak.reserved, late))


def _more(band: Band, beside: Interval) -> Band:
    low, expected, high = (round(one) for one in (beside.low, beside.expected, beside.high))
    return Band(band.low + low, band.expected + expected, band.high + high)


def _peak(plan: Plan, ledger: Ledger, moments: tuple[Moment, ...]) -> Peak:
    moment = largest(moments)
    spare, ratio = spared(ledger.lines, moments), ratio_of(plan)
    allocated = without(_unreplayed(ledger.lines, moment), spare)
    reserved = Band(
        max(round(allocated.low * ratio.low), allocated.low),
        round(allocated.expected * ratio.expected),
        max(round(allocated.high * ratio.high), allocated.high),
    )
    return Peak(moment.name, allocated, allocated, reserved, False, None, spare)


def _unreplayed(lines: tuple[Line, ...], moment: Moment) -> Band:
    """Live bytes without a replay: at most, each large tensor's block keeps the largest end that is not split off."""
    high = sum(
        (line.unit + CUDA.remainder if payload(line) > CUDA.small else line.unit) * copies
        for line, copies in ((lines[number], copies) for number, copies in moment.live)
    )
    return Band(moment.allocated, moment.allocated, max(high, moment.allocated))

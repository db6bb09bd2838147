"""What the allocator takes over a run whose samples have many lengths, in random order.

A micro-batch longer than all before it asks for blocks that no cached one is large enough for: new segments are taken
beside those of the shorter ones. A shorter one finds room in what is cached. So only the records of length count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

from trainledger.allocator.conf import Conf, conf_of
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.stream import Stream, Writer
from trainledger.answer.bands import Band, Outside, replayed_over, scaled
from trainledger.answer.check_acting import acts
from trainledger.answer.estimate import Estimate, architecture_of, device_of
from trainledger.answer.replayed import last_step, repeats, sized, whole_steps
from trainledger.facts.allocator_settings import REPLAY
from trainledger.facts.varied import VARIED
from trainledger.ledger.rank import Ledger, payload, rank_ledger
from trainledger.lines.line import Line
from trainledger.lines.stream import EMPTY, Segment
from trainledger.model.build import model_of
from trainledger.plan.beyond import Lengths
from trainledger.plan.degrees import accumulation
from trainledger.plan.lengths import LONGEST, MEDIAN, at_length, differ, end_to_end, kept, lengths_of, pads
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class OverRun:
    """Bytes reserved at most over `micro_batches` in random order: the middle of several `orders`, the least and most
    of them; the same with expandable segments (None: the plan has them); what the device shows.

    `takes`: micro-batches, of the middle order, that took memory from the device. `full`: orders in which the device is
    full at some time, so that cached blocks are given back, which stalls; `fails`: orders in which that is not enough
    (both 0 where the plan names no device).
    """

    micro_batches: int
    orders: int
    reserved: Band
    device: Band
    takes: int
    expandable: int | None
    full: int
    fails: int


@dataclass(frozen=True, slots=True)
class _Order:
    reserved: int
    takes: int
    stream: Stream


def over_run(answer: Estimate) -> OverRun | None:
    """Of an estimate whose plan says how long samples are; None where they are packed or alike, where roles share the
    device, or where the allocator's settings or the number of events forbid a replay."""
    plan = answer.plan
    given = plan.lengths
    if given is None or given.packing == "packed" or acts(plan) or not _varied(plan):
        return None
    conf = _conf(plan)
    ledgers = _Ledgers(plan, answer.ledger.rank)
    orders = [_order(ledgers, _records(plan, seed), conf) for seed in range(VARIED.orders)] if conf.exact else []
    found = sorted((one for one in orders if one), key=lambda one: one.reserved)
    if len(found) < VARIED.orders:
        return None
    return _answer(answer, plan, conf, found)


def _answer(answer: Estimate, plan: Plan, conf: Conf, found: Sequence[_Order]) -> OverRun:
    over, middle = replayed_over(plan).reserved, found[VARIED.middle]
    high = scaled(found[-1].reserved, over).high
    band = Band(min(answer.steps.reserved.low, middle.reserved), middle.reserved, max(high, middle.reserved))
    outside = Outside.of(answer.architecture, plan, answer.ledger)
    usable = getattr(device_of(plan), "usable_bytes", None)
    room = None if usable is None else max(usable - outside.above(Band(0, 0, 0)).expected, 0)
    full = [one for one in found if room is not None and one.reserved > room]
    fails = sum(not Simulator(conf, room).run(one.stream) for one in full)
    shown = outside.above(band)
    if usable is not None:
        shown = Band(*(min(amount, usable) for amount in (shown.low, shown.expected, shown.high)))
    other = None if conf.expandable else _reserved(middle.stream, replace(conf, expandable=True))
    return OverRun(VARIED.micro_batches, len(found), band, shown, middle.takes, other, len(full), fails)


def _conf(plan: Plan) -> Conf:
    environment = {name: str(value) for name, value in plan.stack.env.items()}
    return conf_of(plan.stack.allocator, environment, architecture_of(device_of(plan)))


def _varied(plan: Plan) -> bool:
    """Whether samples differ in length, as far as they are not cut."""
    return differ(plan, lengths_of(plan).get(LONGEST, 0))


def _samples(plan: Plan, seed: int) -> Iterator[int]:
    """Lengths of samples, drawn by chance from those given or from the curve through their median and longest."""
    from numpy.random import default_rng

    found, values, chance = lengths_of(plan), kept(plan), default_rng(seed)
    middle, longest, drops = found[MEDIAN], found[LONGEST], plan.lengths is not None and plan.lengths.longer == "drop"
    spread, most = log(longest / middle) / VARIED.deviations, min(longest, plan.batch.sequence) if drops else longest
    while True:
        drawn = values[chance.integers(len(values))] if values else max(round(chance.lognormal(log(middle), spread)), 1)
        if drawn <= most:
            yield drawn


def _records(plan: Plan, seed: int) -> Iterator[Plan]:
    """The plan at each micro-batch that is longer than all before it, in one random order."""
    assert plan.lengths is not None
    samples, batch, free = _samples(plan, seed), plan.batch, plan.lengths.packing == "padding-free"
    most = 0
    for _ in range(VARIED.micro_batches):
        drawn = [min(next(samples), batch.sequence) for _ in range(batch.micro_batch)]
        tokens = sum(drawn) if free else at_length(plan, max(drawn)).batch.sequence
        if tokens > most:
            most = tokens
            yield end_to_end(plan, tokens) if free else at_length(plan, tokens)


class _Ledgers:
    """The plan's ledgers by tokens of a row: what building and the first step ask for, and a whole later step."""

    def __init__(self, plan: Plan, rank: int | None) -> None:
        self._plan, self._rank = plan, rank
        self._lengths = Lengths(padded=True) if pads(plan) else None
        self._model, self._architecture = model_of(plan), architecture_of(device_of(plan))
        self._made: dict[int, Ledger] = {}

    def at(self, plan: Plan) -> Ledger:
        """The ledger of one row's length."""
        tokens = plan.batch.sequence
        if tokens not in self._made:
            batch = plan.batch.model_copy(update={"accumulation": min(accumulation(self._plan), VARIED.accumulation)})
            own = plan.model_copy(update={"batch": batch, "evaluation": None, "lengths": self._lengths})
            self._made[tokens] = rank_ledger(own, self._model, self._architecture, self._rank)
        return self._made[tokens]


def _order(ledgers: _Ledgers, plans: Iterable[Plan], conf: Conf) -> _Order | None:
    """One order replayed without a bound; None where a step leaves other lines than it found, or is too long."""
    parts = [ledgers.at(plan) for plan in plans]
    numbers, lines = _numbers(parts)
    queued = frozenset(number for number, line in enumerate(lines) if line.use.queued)
    writer, ends = Writer([line.use.stream for line in lines], queued), list[int]()
    for place, (ledger, own) in enumerate(zip(parts, numbers, strict=True)):
        sizes = [payload(line) for line in ledger.lines]
        whole = sized(ledger.segments, sizes)
        step = last_step(whole)
        if not repeats(step):
            return None
        of = dict(zip(own, sizes, strict=True))
        numbered = _numbered(step if place else whole_steps(whole), own)
        writer.write(numbered, [of.get(number, 0) for number in range(len(lines))])
        ends.append(len(writer))
    return _replayed(writer.build(), ends, conf) if ends[-1] <= REPLAY.events else None


def _numbers(parts: Sequence[Ledger]) -> tuple[list[list[int]], list[Line]]:
    """The number of each ledger's lines among those of all, and these: at some lengths other kernels run. Lines are the
    same by account and name, and by their turn where several have one name."""
    numbers: dict[tuple[str, str, int], int] = {}
    lines, found = list[Line](), list[list[int]]()
    for ledger in parts:
        turns, own = Counter[tuple[str, str]](), list[int]()
        for line in ledger.lines:
            turns[line.account, line.name] += 1
            key = (line.account, line.name, turns[line.account, line.name])
            if key not in numbers:
                numbers[key] = len(lines)
                lines.append(line)
            own.append(numbers[key])
        found.append(own)
    return found, lines


def _numbered(segments: Iterable[Segment], own: Sequence[int]) -> Iterator[Segment]:
    """Segments whose events name lines by these numbers."""
    for one in segments:
        events = (own[abs(event) - 1] + 1 if event else EMPTY for event in one.events)
        signed = (-name if event < 0 else name for name, event in zip(events, one.events, strict=True))
        yield one._replace(events=tuple(signed))


def _replayed(stream: Stream, ends: Sequence[int], conf: Conf) -> _Order:
    simulator, start, takes, before = Simulator(conf), 0, 0, 0
    for end in ends:
        simulator.run(stream, start, end)
        takes += simulator.reserved > before
        start, before = end, simulator.reserved
    return _Order(simulator.peak_reserved, takes, stream)


def _reserved(stream: Stream, conf: Conf) -> int:
    simulator = Simulator(conf)
    simulator.run(stream)
    return simulator.peak_reserved

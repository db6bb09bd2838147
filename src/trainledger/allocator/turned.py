"""Lines run turn by turn on pools that remember what a turn did: as `lined.Lined` runs them, event by event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from trainledger.allocator.conf import Conf
from trainledger.allocator.lined import Lined
from trainledger.allocator.pools import Pool
from trainledger.allocator.ranges import RangePool
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.turns import Change, Turn, Want, Way, turn_of
from trainledger.facts.allocator import CUDA
from trainledger.lines.stream import Events


class _Known:
    """What is known of equal turns: how often each line dies in them, those lines of these that may have older copies,
    with these, and the turn for each number of older copies."""

    __slots__ = ("deaths", "may", "seen", "turns")

    def __init__(self, events: Events) -> None:
        self.deaths = Counter(-event - 1 for event in events if event < 0)
        self.seen = -1
        self.may: list[tuple[int, int, dict[int, int]]] = []
        self.turns: dict[tuple[int, ...], Turn] = {}


class Turned:
    """Lines that are born and die in pools without a bound, in the order of `stream.stream_of`: `sizes` (bytes asked
    for) and `streams` by line; copies of lines that are `queued` die in the order in which they were born.

    `at`: events seen; `allocated`: bytes of live blocks; `peak` of them, and `peak_at`, the event that reached it;
    `reserved`: bytes taken from the device; `most` of them. The maxima may be set back. An accumulator.
    """

    __slots__ = (
        "_held", "_known", "_lanes", "_live", "_lives", "_pools", "_queued", "_same", "_taken", "_took", "_ways",
        "allocated", "at", "most", "peak", "peak_at", "reserved",
    )  # fmt: skip

    def __init__(self, conf: Conf, sizes: Sequence[int], streams: Sequence[int], queued: frozenset[int]) -> None:
        plans, self._queued = Simulator(conf), queued
        numbers = dict[tuple[int, bool], int]()
        self._ways: list[Way] = []
        for size, stream in zip(sizes, streams, strict=True):
            plan = plans.plan(size or 1)
            number = numbers.setdefault((stream, plan.small), len(numbers))
            self._ways.append(Way(number, Want(plan.key, plan.block, plan.keep, plan.opened)))
        self._pools = [_pool(conf, small) for _, small in numbers]
        self._live: list[dict[int, int]] = [{} for _ in sizes]  # blocks by age, with the lane each was born in
        self._lanes: dict[tuple[int, int], list[int]] = {}  # blocks that were born in a lane, by line and lane, by age
        self._took: list[tuple[Change, ...]] = []  # of pools, in the turn that runs
        self._lives: set[int] = set()  # lines of which a turn ever left copies
        self._known: dict[Events, _Known] = {}
        self._same: dict[int, _Known] = {}  # by the identity of events, which are held so that it is theirs alone
        self._held: list[Events] = []
        self.at = self.allocated = self.peak = self.peak_at = self.most = self.reserved = self._taken = 0

    def run(self, events: Events, lane: int = 0) -> None:
        """Events of one turn of a segment in its lane; none of lines without bytes. Raises StreamError when a line dies
        more often than it was born."""
        turn, live = self._turn(events), self._live
        dying = self._dying(turn, lane) if turn.olds else {}
        ends: tuple[Change, ...] = ()
        for program in turn.programs:
            _, left, more, taken = self._pools[program.pool].run(program, dying.get(program.pool, ()))
            if left:
                for line, block in zip(program.lines, left, strict=True):
                    live[line][block] = lane
                    if lane:
                        self._lanes.setdefault((line, lane), []).append(block)
            if more:
                ends += more
            if taken:
                self._took.append(taken)
        high, allocated = turn.highest(tuple(sorted(ends))) if ends else turn.high, self.allocated
        if high is not None and allocated + high[1] > self.peak:
            self.peak, self.peak_at = allocated + high[1], self.at + high[0]
        self.allocated = allocated + turn.net + (sum([size for _, size in ends]) if ends else 0)
        self.at += len(events)
        if self._took:
            self._take()

    def _dying(self, turn: Turn, lane: int) -> dict[int, tuple[int, ...]]:
        """By pool, the blocks of older copies that die in a turn of this lane, which are live no longer; of a line the
        one that dies first is the last, as a turn's slots have it."""
        found: dict[int, tuple[int, ...]] = {}
        for line, pool, count, first in turn.olds:
            own = self._own(line, count, lane) if lane and not first else []
            others = self._part(line, count - len(own), first) if len(own) < count else []
            found[pool] = (*found.get(pool, ()), *others, *own)
        return found

    def _own(self, line: int, count: int, lane: int) -> list[int]:
        """The last copies of a line that were born in a lane, taken away."""
        blocks, copies = self._lanes.get((line, lane), []), self._live[line]
        found = blocks[-count:]
        del blocks[-count:]
        for block in found:
            del copies[block]
        return found

    def _part(self, line: int, count: int, first: bool) -> list[int]:
        """The first or the last copies of a line, of whatever lane, taken away; by age."""
        copies = self._live[line]
        found = list(islice(copies if first else reversed(copies), count))
        for block in found:
            lane = copies.pop(block)
            if lane:
                self._lanes[line, lane].remove(block)
        return found if first else found[::-1]

    def _take(self) -> None:
        """What the pools took from the device in a turn, and gave back, by event."""
        for _, size in sorted(change for taken in self._took for change in taken):
            self.reserved += size
            if size > 0:
                self._taken += size
                self.most = max(self.most, self.reserved)
        self._took.clear()

    def _turn(self, events: Events) -> Turn:
        """The turn of these events with as many older copies as there are now."""
        known = self._same.get(id(events)) or self._found(events)
        if known.seen != len(self._lives):
            may = [(line, count, self._live[line]) for line, count in known.deaths.items() if line in self._lives]
            known.seen = len(self._lives)
            if len(may) != len(known.may):
                known.may, known.turns = may, {}
        counts = tuple([count if len(copies) > count else len(copies) for _, count, copies in known.may])
        turn = known.turns.get(counts)
        if turn is None:
            olds = [(line, count) for (line, *_), count in zip(known.may, counts, strict=True) if count]
            turn = known.turns[counts] = turn_of(events, olds, self._ways, self._queued)
            self._lives |= {line for program in turn.programs for line in program.lines}
        return turn

    def _found(self, events: Events) -> _Known:
        """What is known of these events, found by themselves, and from now on by their identity."""
        known = self._known.get(events)
        if known is None:
            known = self._known[events] = _Known(events)
        self._same[id(events)] = known
        self._held.append(events)
        return known

    def state(self) -> tuple[object, ...]:
        """What all that follows goes by: what was ever taken from the device and what is taken now, and where every
        copy lies, by line and age, and which lane it was born in; free blocks are what lies between these, always
        joined."""
        return (self.reserved, self._taken, tuple(tuple(copies.items()) for copies in self._live))


def _pool(conf: Conf, small: bool) -> Pool:
    return RangePool(CUDA.small_segment if small else conf.shared) if conf.expandable else Pool()


def lines_on(conf: Conf, sizes: Sequence[int], streams: Sequence[int], queued: frozenset[int]) -> Turned | Lined:
    """Lines on an allocator of these settings: with what a turn did remembered, unless more than free blocks decides
    what is taken (a bound on splitting). Garbage is collected only on a device whose size is known."""
    if conf.max_split is None:
        return Turned(conf, sizes, streams, queued)
    return Lined(Simulator(conf), sizes, streams, queued)

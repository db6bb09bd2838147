"""Runs on devices of several sizes that share their beginning: up to the first request that does not fit, a run is the
one without a bound."""

from __future__ import annotations

from bisect import bisect_right
from copy import copy

from trainledger.allocator.blocks import Block, Pool, SizePlan
from trainledger.allocator.conf import Conf
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.stream import Stream


class Unbounded(Simulator):
    """A simulator without a bound that notes every new peak of what is reserved (bytes), and its event (from 0)."""

    __slots__ = ("events_of_peaks", "peaks")

    def __init__(self, conf: Conf) -> None:
        super().__init__(conf)
        self.peaks: list[int] = []
        self.events_of_peaks: list[int] = []

    def _take(self, plan: SizePlan, pool: Pool) -> Block | None:
        block = super()._take(plan, pool)
        if not self.peaks or self.reserved > self.peaks[-1]:
            self.peaks.append(self.reserved)
            self.events_of_peaks.append(self.at)
        return block


class Stem:
    """A stream's run without a bound, as far as no smaller device that is still asked for leaves it. `whole`: that run,
    which is over. Not for settings by which a bound says more than when the device is full."""

    def __init__(self, stream: Stream, whole: Unbounded) -> None:
        self._stream, self._whole, self._stem = stream, whole, Simulator(whole.conf)

    def at(self, least: int, capacity: int) -> Simulator:
        """A simulator on `capacity` bytes where a device of `least` fails at its next event (`at`), or after the last:
        what is to be run is the rest. `least` is no more than `capacity`, nor less than it was before."""
        first = bisect_right(self._whole.peaks, least)
        leaves = (*self._whole.events_of_peaks, len(self._stream))[first]
        self._stem.run(self._stream, self._stem.at, leaves)
        return copied(self._stem, capacity)


class Tried:
    """Runs that are over, each with whether all of it fitted. On a capacity (bytes) that is no less than a run took at
    most, and less than the least that it was refused, a run is the same. Not for settings by which a bound says more
    than when the device is full."""

    def __init__(self) -> None:
        self._runs: list[tuple[Simulator, bool]] = []

    def added(self, run: Simulator, fits: bool) -> tuple[Simulator, bool]:
        """A run that is over, noted."""
        self._runs.append((run, fits))
        return run, fits

    def at(self, capacity: int) -> tuple[Simulator, bool] | None:
        """The run that one on this capacity would be; None where none is known to be the same."""
        for run, fits in self._runs:
            device = run.device
            if device.highest <= capacity and (device.refused is None or capacity < device.refused):
                return run, fits
        return None


def copied(simulator: Simulator, capacity: int) -> Simulator:
    """A simulator in the same state on a device of `capacity` bytes. Its own is not expandable."""
    found = copy(simulator)
    found.device = copy(simulator.device)
    found.device.capacity = capacity
    found.device.highest, found.device.refused = found.device.reserved, None
    pools = {id(pool): copy(pool) for pool in (*simulator.small.values(), *simulator.large.values())}
    waiting = (block for blocks in simulator.events.values() for block in blocks)
    free = (block for pool in pools.values() for block in pool.by_key.values())
    twins: dict[int, Block] = {}
    for block in (*simulator.blocks.values(), *waiting, *simulator.ready, *free):
        twins[id(block)] = copy(block)
    for twin in twins.values():
        twin.pool = pools[id(twin.pool)]
        twin.prev = twins[id(twin.prev)] if twin.prev else None
        twin.next = twins[id(twin.next)] if twin.next else None
    for pool in pools.values():
        pool.keys, pool.by_key = pool.keys[:], {key: twins[id(block)] for key, block in pool.by_key.items()}
    found.small = {stream: pools[id(pool)] for stream, pool in simulator.small.items()}
    found.large = {stream: pools[id(pool)] for stream, pool in simulator.large.items()}
    found.blocks = {ident: twins[id(block)] for ident, block in simulator.blocks.items()}
    found.events = {stream: [twins[id(one)] for one in blocks] for stream, blocks in simulator.events.items()}
    found.ready = [twins[id(block)] for block in simulator.ready]
    return found

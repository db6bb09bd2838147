"""Births and deaths of lines, run on the allocator as they come, without a stream of them written out first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from trainledger.allocator.blocks import Block, Pool, SizePlan
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.stream import StreamError, own
from trainledger.lines.stream import Events


class Way(NamedTuple):
    """Where a line's request leads: the plan of its size, with the key at which the search starts, the block's bytes
    and the rest that is not split off; the pool, with its keys and blocks."""

    plan: SizePlan
    key: int
    block: int
    keep: int
    pool: Pool
    keys: list[int]
    by_key: dict[int, Block]


class Lined:
    """A simulator without a bound, on which lines are born and die in the order of `stream.stream_of`. `sizes` (bytes
    asked for) and `streams` by line; copies of lines that are `queued` die in the order in which they were born.

    `at`: events seen; `allocated`: bytes of live blocks; `peak` of them, and `peak_at`, the event that reached it;
    `most`: bytes reserved at most. The three maxima may be set back. An accumulator.
    """

    __slots__ = ("_lanes", "_live", "_queued", "_ways", "allocated", "at", "most", "peak", "peak_at", "simulator")

    def __init__(
        self, simulator: Simulator, sizes: Sequence[int], streams: Sequence[int], queued: frozenset[int]
    ) -> None:
        self.simulator, self._queued = simulator, queued
        self._live: list[list[Block]] = [[] for _ in sizes]
        self._lanes: dict[int, int] = {}  # of blocks that were born in one, by address
        self._ways = [self._way(size or 1, stream) for size, stream in zip(sizes, streams, strict=True)]
        self.at = self.allocated = self.peak = self.peak_at = self.most = 0

    @property
    def reserved(self) -> int:
        """Bytes taken from the device."""
        return self.simulator.reserved

    def _way(self, size: int, stream: int) -> Way:
        plan = self.simulator.plan(size)
        pool = self.simulator.pool(stream, plan.small)
        return Way(plan, plan.key, plan.block, plan.keep, pool, pool.keys, pool.by_key)

    def run(self, events: Events, lane: int = 0) -> None:
        """Events of one turn of a segment in its lane; none of lines without bytes. Raises StreamError when a line dies
        more often than it was born."""
        live, ways, leaving = self._live, self._ways, self._leaving
        plain, split, back = self.simulator.plain, self.simulator.split, self.simulator.give_back
        older: dict[int, int] = {}  # of lines born in this turn: how many copies are older than it
        lanes = self._lanes
        allocated, peak = self.allocated, self.peak
        for at, event in enumerate(events, self.at):
            if event > 0:
                line = event - 1
                copies = live[line]
                if line not in older:
                    older[line] = len(copies)
                plan, key, size, keep, pool, keys, by_key = ways[line]
                place = bisect_left(keys, key)
                if plain and place < len(keys):
                    block = by_key.pop(keys.pop(place))
                    block.free = False
                else:
                    block = self._opened(plan, pool)
                if block.size - size > keep:
                    split(block, size)
                copies.append(block)
                if lane:
                    lanes[block.address] = lane
                allocated += block.size
                if allocated > peak:
                    peak, self.peak_at = allocated, at
            elif event:
                block = leaving(-event - 1, older, lane)
                allocated -= block.size
                back(block)
            else:
                self.simulator.empty()
        self.allocated, self.peak, self.at = allocated, peak, self.at + len(events)

    def _leaving(self, line: int, older: dict[int, int], lane: int) -> Block:
        """The block of the copy of a line that dies now, which is no longer held then."""
        copies, lanes, queued = self._live[line], self._lanes, line in self._queued
        if not copies:
            raise StreamError(f"line {line} dies and is not live")
        before = 1 if queued else older.get(line, 0)  # the first of all, or the last of the older ones
        if lane and not queued:
            before = own([lanes.get(one.address, 0) for one in copies], before or len(copies), lane)
        if before and line in older:
            older[line] -= before <= older[line]
        block = copies.pop(before - 1)
        if lanes:
            lanes.pop(block.address, None)
        return block

    def _opened(self, plan: SizePlan, pool: Pool) -> Block:
        """A block that is found by more than its size, or new from the device."""
        block = self.simulator.opened(plan, pool)
        assert block is not None  # nothing bounds what is taken
        self.most = max(self.most, self.simulator.reserved)
        return block

    def state(self) -> tuple[object, ...] | None:
        """What all that follows goes by: what was ever taken from the device and what is taken now, and where every
        copy lies, by line and age; free blocks are what lies between these, always joined. None where it goes by how
        long blocks were not used, too."""
        if self.simulator.conf.collect:
            return None
        device = self.simulator.device
        placed = tuple(tuple((one.address, one.size) for one in copies) for copies in self._live)
        lanes = tuple(sorted(self._lanes.items()))
        return (device.reserved, device.reserved + device.released_bytes, placed, lanes)

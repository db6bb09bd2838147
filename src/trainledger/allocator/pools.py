"""One pool of the allocator as an automaton: its state is its free blocks, its input what a turn asks of it.

Without a bound on splitting, and where the device gives all that is asked for (so that garbage is never collected),
what a pool does follows from three things alone: its free blocks, where new memory lies, and where the blocks lie that
the turn gives back. For a request takes the first free block that is large enough, by size and then address, or else
new memory; a block that is given back joins free neighbours, which are the free blocks that end where it begins and
begin where it ends, since an address between two segments belongs to neither. So what a turn does from a state is run
once and then looked up, exactly: the rounds of a pipeline's steady state, micro-batches that are accumulated, equal
layers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

from trainledger.allocator.blocks import BITS
from trainledger.allocator.turns import Change, Program
from trainledger.facts.allocator_settings import RECALL

ADDRESS = (1 << BITS) - 1  # of a block's key: its size above, its address below


New = tuple[tuple[int, int], ...]  # where new memory lies: from one address to another, of a pool's own addresses


class State:
    """Free blocks (keys, sorted) and where new memory lies; `after`: what programs did from here, by the blocks of
    older copies that died in them. An accumulator."""

    __slots__ = ("after", "free", "new")

    def __init__(self, free: tuple[int, ...], new: New) -> None:
        self.free, self.new = free, new
        self.after: dict[tuple[Program, tuple[int, ...]], Outcome] = {}


class Outcome(NamedTuple):
    """What a program did: the state it left (None where states are not kept), the blocks that outlive it; by event, how
    what blocks hold beyond what was asked for changes, and what was taken from the device."""

    state: State | None
    left: tuple[int, ...]
    ends: tuple[Change, ...] = ()
    taken: tuple[Change, ...] = ()


class Pool:
    """A pool of segments, without a bound. Blocks are keys: size above, address below. An accumulator."""

    segments = True  # new memory comes in segments
    __slots__ = ("_at", "_cost", "_edges", "_gain", "_keys", "_state", "_states", "_top", "_whole")

    def __init__(self) -> None:
        self._keys: list[int] = []  # of free blocks, sorted
        self._edges: dict[int, int] = {}  # and by the addresses where they begin and end
        self._top = 0
        self._whole: set[int] = set()  # segments that were ever taken; no address is used again
        self._states: dict[tuple[New, tuple[int, ...]], State] = {}
        self._state: State | None = self._named()
        self._at: State | None = self._state  # the state that the lists above are in
        self._cost = self._gain = 0

    def run(self, program: Program, olds: tuple[int, ...]) -> Outcome:
        """Run a program in which these blocks of older copies die."""
        state = self._state
        if state is None:
            return self._made(program, olds)
        found = state.after.get((program, olds))
        if found is None:
            if self._at is not state:
                self._load(state)
            found = state.after[program, olds] = self._made(program, olds)
        else:
            self._gain += len(program.steps)
        self._state = found.state
        return found

    def _named(self) -> State:
        free, new = tuple(self._keys), self._new()
        state = self._states.get((new, free))
        if state is None:
            state = self._states[new, free] = State(free, new)
        return state

    def _load(self, state: State) -> None:
        self._keys = list(state.free)
        self._renew(state.new)
        self._edges = {key & ADDRESS: key for key in self._keys}
        self._edges.update({(key & ADDRESS) + (key >> BITS): key for key in self._keys})

    def _made(self, program: Program, olds: tuple[int, ...]) -> Outcome:
        """Run on the lists. States are kept as long as looking them up costs less than it saves, or not much more."""
        blocks, odd = [0, *olds] + [0] * (len(program.wants) - len(olds) - 1), list[int]()
        taken = self._stepped(program, blocks, odd)
        self._cost += len(self._keys)
        kept = self._state is not None and self._cost <= self._gain * RECALL.worth + RECALL.lost
        self._at = self._named() if kept else None
        left = tuple([blocks[slot] for slot in program.left])
        ends = _beyond(program, blocks, odd) if olds or odd else ()
        return Outcome(self._at, left, ends, tuple(taken))

    def _stepped(self, program: Program, blocks: list[int], odd: list[int]) -> list[Change]:
        """Every step on the lists: births put their blocks into `blocks`, by slot, and slots of larger ones than asked
        for into `odd`. What was taken from the device."""
        keys, edges, taken = self._keys, self._edges, list[Change]()
        best, emptied = None if self.segments else self._best, iter(program.emptied)
        for slot, key, cut, shift in program.steps:
            if slot > 0:
                place = bisect_left(keys, key)
                try:
                    block = keys.pop(best(place) if best else place)
                except IndexError:  # none is large enough
                    _, size, _, opened = program.wants[slot]
                    block, more = self._opened(size if best else opened)
                    taken.append((program.born[slot], more))
                    start = block & ADDRESS
                else:
                    start = block & ADDRESS
                    del edges[start]
                if block >= cut:
                    rest = block - shift
                    edges[rest & ADDRESS] = edges[start + (block >> BITS)] = rest
                    insort(keys, rest)
                    block = key | start
                else:
                    edges.pop(start + (block >> BITS), None)
                    if block != key | start:
                        odd.append(slot)
                blocks[slot] = block
            elif slot:
                give(keys, edges, blocks[-slot])
            else:
                taken.append((next(emptied), -self._emptied()))
        return taken

    def _new(self) -> New:
        """Where new memory lies."""
        return ((self._top, self._top),)

    def _renew(self, new: New) -> None:
        """New memory lies there."""
        self._top = new[0][0]

    def _best(self, place: int) -> int:
        """The place of the free block to take, where the one at `place` is the first that is large enough."""
        return place

    def _opened(self, size: int) -> tuple[int, int]:
        """A block of new memory, in no list, and the bytes taken for it: a segment of this size. Between two of them
        lies an address of neither."""
        block = size << BITS | self._top
        self._whole.add(block)
        self._top += size + 1
        return block, size

    def _emptied(self) -> int:
        """Give free blocks that are whole segments back to the device: their bytes."""
        gone = [key for key in self._keys if key in self._whole]
        for key in gone:
            self._keys.remove(key)
            del self._edges[key & ADDRESS], self._edges[(key & ADDRESS) + (key >> BITS)]
        return sum(key >> BITS for key in gone)


def give(keys: list[int], edges: dict[int, int], block: int) -> None:
    """A block is free, joined with free neighbours: into the sorted keys, and into those by both edges."""
    start = block & ADDRESS
    end = start + (block >> BITS)
    before, after = edges.pop(start, 0), edges.pop(end, 0)
    if before:
        del keys[bisect_left(keys, before)]
        start = before & ADDRESS
    if after:
        del keys[bisect_left(keys, after)]
        end += after >> BITS
    joined = edges[start] = edges[end] = (end - start) << BITS | start
    insort(keys, joined)


def _beyond(program: Program, blocks: Sequence[int], odd: Sequence[int]) -> tuple[Change, ...]:
    """By event, how what blocks hold beyond what was asked for changes: those of older copies, and of `odd` slots."""
    found, wants, born, dies = list[Change](), program.wants, program.born, program.dies
    for slot in range(1, program.olds + 1):
        more = (blocks[slot] >> BITS) - wants[slot].block
        if more:
            found.append((dies[slot], -more))
    for slot in odd:
        more = (blocks[slot] >> BITS) - wants[slot].block
        found.append((born[slot], more))
        if dies[slot] >= 0:
            found.append((dies[slot], -more))
    return tuple(found)

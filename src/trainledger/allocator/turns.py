"""Turns of events as programs: what a turn asks of each pool of the allocator, and which blocks outlive it.

Which copy of a line dies at a death is settled here once, for all turns that begin with as many older copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainledger.allocator.blocks import BITS
from trainledger.allocator.stream import StreamError
from trainledger.lines.stream import EMPTY, Events

Change = tuple[int, int]  # an event of a turn, and by how many bytes an amount changes there
# What a program does at an event: the slot of a birth, its negative at a death, EMPTY. Of a birth, the key at which the
# search starts, that from which on a free block is split, and how far the key of its rest is below its own. A plain
# tuple, which is taken apart three times as quickly as a named one.
Step = tuple[int, int, int, int]


class Want(NamedTuple):
    """What a birth asks for (bytes): the key at which the search starts, the block, the rest of a free block that is
    not split off, the segment that is opened where no free block is large enough."""

    key: int
    block: int
    keep: int
    opened: int


class Way(NamedTuple):
    """Where a line's births lead: the number of its pool, and what they ask for."""

    pool: int
    want: Want


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """What a turn asks of one pool. Its blocks have slots from 1 on: first older copies that die in the turn, then what
    is born in it. `emptied`: the events of EMPTY, in order; by slot, 0 aside, `wants`, and the events at which its
    block is born and dies (-1: not in the turn); `olds`: how many slots are of older copies; `left`: slots born in the
    turn that outlive it, with their `lines`. A program equals itself alone."""

    pool: int
    steps: tuple[Step, ...]
    emptied: tuple[int, ...]
    wants: tuple[Want, ...]
    born: tuple[int, ...]
    dies: tuple[int, ...]
    olds: int
    left: tuple[int, ...]
    lines: tuple[int, ...]


class Olds(NamedTuple):
    """Older copies of a line that die in a turn: the pool they lie in, how many, and whether the first ones do."""

    line: int
    pool: int
    copies: int
    first: bool


class Turn:
    """A turn's programs, and its older copies by line. `births`: for each event, whether it is one; `planned`: bytes
    asked for after it, as blocks, less those before the turn. `net`: those after the last; `high`: see `highest`, where
    blocks hold what was asked for."""

    __slots__ = ("_births", "_highs", "_planned", "high", "net", "olds", "programs")

    def __init__(
        self, programs: tuple[Program, ...], olds: tuple[Olds, ...], births: Sequence[bool], planned: Sequence[int]
    ) -> None:
        self.programs, self.olds = programs, olds
        self._births, self._planned = births, planned
        self._highs: dict[tuple[Change, ...], Change | None] = {}
        self.net = planned[-1] if planned else 0
        self.high = self.highest(())

    def highest(self, ends: tuple[Change, ...]) -> Change | None:
        """The first event after which most is allocated, of births, and the bytes above those before the turn; None
        without a birth. `ends`: by how much what blocks hold beyond what was asked for changes, and where."""
        if ends not in self._highs:
            self._highs[ends] = self._found(ends)
        return self._highs[ends]

    def _found(self, ends: Iterable[Change]) -> Change | None:
        more, changes = 0, Counter[int]()
        for event, change in ends:
            changes[event] += change
        found: Change | None = None
        for event, (born, planned) in enumerate(zip(self._births, self._planned, strict=True)):
            more += changes[event]
            if born and (found is None or planned + more > found[1]):
                found = event, planned + more
        return found


class _Draft:
    """A program as it is put together."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.events: list[int] = []
        self.wants: list[Want] = [Want(0, 0, 0, 0)]
        self.olds = 0
        self.left: list[tuple[int, int]] = []

    def slot(self, want: Want) -> int:
        self.wants.append(want)
        return len(self.wants) - 1

    def step(self, step: int, event: int) -> None:
        self.steps.append(step)
        self.events.append(event)

    def build(self, pool: int) -> Program:
        left = tuple(slot for slot, _ in self.left)
        lines = tuple(line for _, line in self.left)
        at = dict(zip(self.steps, self.events, strict=True))
        slots = range(len(self.wants))
        born, dies = tuple(at.get(slot, -1) for slot in slots), tuple(at.get(-slot, -1) for slot in slots)
        steps = tuple(_birth(slot, self.wants[slot]) if slot > 0 else (slot, 0, 0, 0) for slot in self.steps)
        emptied = tuple(event for slot, event in zip(self.steps, self.events, strict=True) if slot == EMPTY)
        return Program(pool, steps, emptied, tuple(self.wants), born, dies, self.olds, left, lines)


def _birth(slot: int, want: Want) -> Step:
    return slot, want.key, want.key + ((want.keep + 1) << BITS), want.key - want.block


def turn_of(events: Events, olds: Sequence[tuple[int, int]], ways: Sequence[Way], queued: frozenset[int]) -> Turn:
    """A turn of lines that have these many older copies: `olds` names each line that has some and dies in the turn,
    with no more of them than it dies times. `ways`: by line; lines that are `queued` die in the order of births.

    Raises StreamError when a line dies more often than it was born.
    """
    drafts = {pool: _Draft() for pool in sorted({way.pool for way in ways})}
    copies: dict[int, list[int]] = {}
    gone = tuple(Olds(line, ways[line].pool, count, line in queued) for line, count in olds)
    for line, pool, count, _ in gone:
        copies[line] = [drafts[pool].slot(ways[line].want) for _ in range(count)]
        drafts[pool].olds += count
    older: dict[int, int] = {}  # of lines born in this turn: how many copies are older than it
    planned, total = list[int](), 0
    for at, event in enumerate(events):
        if event == EMPTY:
            for draft in drafts.values():
                draft.step(EMPTY, at)
        elif event > 0:
            line = event - 1
            pool, want = ways[line]
            here = copies.setdefault(line, [])
            older.setdefault(line, len(here))
            here.append(drafts[pool].slot(want))
            drafts[pool].step(here[-1], at)
            total += want.block
        else:
            line = -event - 1
            drafts[ways[line].pool].step(-_dying(line, copies, older, queued), at)
            total -= ways[line].want.block
        planned.append(total)
    for line, slots in copies.items():
        drafts[ways[line].pool].left += [(slot, line) for slot in slots]
    programs = tuple(draft.build(pool) for pool, draft in drafts.items() if draft.steps)
    return Turn(programs, gone, [event > 0 for event in events], planned)


def _dying(line: int, copies: dict[int, list[int]], older: dict[int, int], queued: frozenset[int]) -> int:
    """The slot of the copy that dies: the first of all where copies are queued, else the last of those that are older
    than the turn, else the last."""
    if not copies.get(line):
        raise StreamError(f"line {line} dies and is not live")
    before = 1 if line in queued else older.get(line, 0)
    if before:
        older[line] = before - 1
    return copies[line].pop(before - 1)

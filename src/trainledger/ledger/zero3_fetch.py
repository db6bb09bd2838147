"""When DeepSpeed's ZeRO-3 gathers a parameter, fetches it ahead, and lets it go: the parameter coordinator.

The first micro-batch of a run is traced: nothing is fetched ahead, every parameter goes after its module. From then on
the trace of module calls, forward and backward, says what comes next.
Source: deepspeed/runtime/zero/partitioned_param_coordinator.py (0.9.5 to 0.19.8).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from itertools import accumulate

from trainledger.ledger.registered import Slot
from trainledger.ledger.zero3_gathered import Fetching, Gathered

NEVER = -1


class Mode(Enum):
    """How far the trace is."""

    NONE = auto()
    RECORDS = auto()
    COMPLETE = auto()


class Coordinator:
    """The trace, what is fetched ahead by it, and what is kept. It lives as long as the run."""

    def __init__(self, how: Fetching, gathered: Gathered) -> None:
        self.how, self.gathered = how, gathered
        self.mode = Mode.NONE
        self.trace: list[tuple[Slot, ...]] = []
        self.uses: dict[Slot, list[int]] = {}
        self.sums: list[int] = [0]
        self.queue: deque[tuple[Slot, int]] = deque()
        self.recent: dict[Slot, int] = {}
        self.active: dict[Slot, int] = {}
        self.kept: dict[tuple[Slot, int], bool] = {}
        self.step = 0

    @property
    def state(self) -> tuple[object, ...]:
        """What a micro-batch finds and leaves; what is decided once only grows, so that its number tells it."""
        active = frozenset(slot for slot, times in self.active.items() if times)
        return (self.mode, len(self.kept), active, *self.gathered.state)

    def start(self, late: Sequence[Slot] = ()) -> list[int]:
        """A micro-batch begins: what is still under way goes; the trace of the first is complete at the second.

        `late`: parameters that the root was found to read itself, which its calls in the trace had not known.
        """
        events: list[int] = []
        for slot in self.gathered.pending:
            events += [*self.gathered.wait(slot), *self._release(slot)]
        if self.mode is Mode.NONE:
            self.mode = Mode.RECORDS
        elif self.mode is Mode.RECORDS:
            self._complete(tuple(late))
        self.queue = deque((slot, at) for at, slots in enumerate(self.trace) for slot in slots)
        if self.mode is Mode.RECORDS:
            self.queue.clear()
        self.recent, self.active = {}, {}
        self.step, self.gathered.live = 0, 0
        return events

    def _complete(self, late: tuple[Slot, ...]) -> None:
        self.mode = Mode.COMPLETE
        if late:
            self.trace[0] = late
        for at, slots in enumerate(self.trace):
            for slot in slots:
                self.uses.setdefault(slot, []).append(at)
        self.sums = list(accumulate((sum(slot.size for slot in slots) for slots in self.trace), initial=0))

    def fetch(self, slots: Sequence[Slot], backward: bool = False) -> list[int]:
        """A module is about to run: its parameters are gathered and waited for, then others are fetched ahead."""
        if self.mode is Mode.RECORDS:
            self.trace.append(tuple(slots))
        events = self.gathered.gather(slots, backward) if slots else []
        for slot in slots:
            self.active[slot] = self.active.get(slot, 0) + 1
            events += self.gathered.wait(slot)
        if self.mode is Mode.COMPLETE:
            wanted = {slot for slot in slots if self.recent.get(slot, NEVER) < self.step}
            while self.queue and wanted:
                slot, at = self.queue.popleft()
                self.recent[slot] = at
                wanted.discard(slot)
            events += self._ahead(backward)
        self.step += 1
        return events

    def _ahead(self, backward: bool) -> list[int]:
        room = min(self.how.live - self.gathered.live, self.how.prefetch)
        found: dict[Slot, None] = {}
        size = 0
        while self.queue and size < room:
            slot, at = self.queue.popleft()
            self.recent[slot] = max(self.recent.get(slot, NEVER), at)
            if self.gathered.absent(slot) and slot not in found:
                found[slot] = None
                size += slot.size
        return self.gathered.gather(found, backward) if found else []

    def leave(self, slots: Sequence[Slot], forward: bool) -> list[int]:
        """A module has run: its parameters go, but for those that are used again soon."""
        events: list[int] = []
        for slot in slots:
            self.active[slot] = 0
            if self.mode is not Mode.COMPLETE or not self._keeps(slot):
                events += self._release(slot, forward)
        return events

    def _keeps(self, slot: Slot) -> bool:
        """Decided once for each place in the trace."""
        key = (slot, self.step)
        if key not in self.kept:
            self.kept[key] = self.how.stays(slot) or self.recent.get(slot, NEVER) > self.step or self._again(slot)
        return self.kept[key]

    def _again(self, slot: Slot) -> bool:
        uses = self.uses.get(slot, [])
        place = bisect_left(uses, self.step)
        if place == len(uses):
            return False
        return self.sums[uses[place]] - self.sums[min(self.step, len(self.trace))] < self.how.reuse

    def _release(self, slot: Slot, forward: bool = False) -> list[int]:
        return [] if self.active.get(slot) else self.gathered.release(slot, forward)

    def let_go(self, slots: Iterable[Slot]) -> list[int]:
        """After backward: parameters whose module has no backward that returns."""
        events: list[int] = []
        for slot in slots:
            self.active[slot] = 0
            if not self.how.stays(slot):
                events += self._release(slot)
        return events

    def close(self, slots: Iterable[Slot]) -> list[int]:
        """Before the optimizer's step all go, persistent ones too, and second parts."""
        events: list[int] = []
        for slot in self.gathered.pending:
            events += self.gathered.wait(slot)
        self.active = {}
        for slot in slots:
            events += self._release(slot)
        events += [-line - 1 for line in self.gathered.second]
        self.gathered.second.clear()
        return events

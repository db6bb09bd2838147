"""When DeepSpeed's ZeRO-3 gathers a parameter, fetches it ahead, and lets it go: the parameter coordinator.

The first micro-batch of a run is traced: nothing is fetched ahead, every parameter goes after its module. From then on
the trace of module calls, forward and backward, says what comes next.
Source: deepspeed/runtime/zero/partitioned_param_coordinator.py, partition_parameters.py (0.9.5 to 0.19.8).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate

from trainledger.base.dims import Axis, Dim
from trainledger.facts.deepspeed import DEEPSPEED
from trainledger.facts.dtypes import DType
from trainledger.ledger.book import Book, Made
from trainledger.ledger.registered import Slot
from trainledger.lines.line import Account
from trainledger.lines.shards import rows_of

NEVER = -1
GATHER = len(("compute", "reduction"))  # the stream of gathers that overlap


@dataclass(frozen=True, slots=True)
class Fetching:
    """Settings: ranks over which a parameter is spread; dtype of what is gathered; elements that one fetch ahead and
    all gathered parameters may have; within how many elements a parameter that is used again stays; those that always
    stay; whether gathers have a stream of their own, parts lie on the host; ranks of a second part (0: none); whether
    a linear layer's node saves the weight as it was gathered (`torch.nn.functional.linear` as it is) and not the
    parameter, and whether it does in a forward that runs again."""

    ranks: int
    dtype: DType
    prefetch: int
    live: int
    reuse: int
    persistent: frozenset[Slot]
    overlap: bool
    offload: bool
    second: int
    saved: bool
    remade: bool


class Mode(Enum):
    """How far the trace is."""

    NONE = auto()
    RECORDS = auto()
    COMPLETE = auto()


class Gathered:
    """Parameters that are gathered or under way, as lines: a single one is gathered in its own place, several in one
    flat tensor, out of which each is copied when the first of them is waited for. A node that saved a gathered
    parameter's tensor holds it when the parameter is let go."""

    __slots__ = ("_flat", "_group", "_how", "_left", "_saved", "book", "here", "live", "second")

    def __init__(self, book: Book, how: Fetching) -> None:
        self.book, self._how = book, how
        self.here: dict[Slot, int] = {}  # a gathered parameter's line
        self._group: dict[Slot, tuple[Slot, ...]] = {}  # under way, with those it is gathered with
        self._flat: dict[tuple[Slot, ...], int] = {}
        self._saved: set[Slot] = set()  # gathered, and held by a node too
        self._left: dict[Slot, list[int]] = {}  # let go, and held by nodes alone
        self.live = 0
        self.second: list[int] = []

    def absent(self, slot: Slot) -> bool:
        """Whether a parameter is neither gathered nor under way."""
        return slot not in self.here and slot not in self._group

    @property
    def pending(self) -> tuple[Slot, ...]:
        """Parameters under way."""
        return tuple(self._group)

    def gather(self, slots: Iterable[Slot], backward: bool = False) -> list[int]:
        """Start one gather of those that are absent."""
        absent, ranks, events = self._started(slots, backward)
        if not absent:
            return []
        sizes = [rows_of(slot.size, ranks) * ranks for slot in absent]
        if absent[1:]:
            name = f"{len(absent)} weights gathered at once"
            self._flat[absent] = self._line(name, (Axis(Dim.ELEMENTS, sum(sizes)),))
            return [*events, self._flat[absent] + 1]
        self.here[absent[0]] = self._line(f"{absent[0].name} (whole)", (Axis(Dim.ELEMENTS, sizes[0]),))
        return [*events, self.here[absent[0]] + 1]

    def plainly(self, slots: Sequence[Slot]) -> list[int]:
        """Gather these at once and wait for them, past the coordinator: as they are, whatever it does with others."""
        started = Gathered.gather(self, slots)
        return [*started, *(event for slot in slots for event in Gathered.wait(self, slot))]

    def _started(self, slots: Iterable[Slot], backward: bool) -> tuple[tuple[Slot, ...], int, list[int]]:
        """Those that are absent, from now on under way; over how many ranks they are gathered; their parts' loads."""
        absent = tuple(slot for slot in dict.fromkeys(slots) if self.absent(slot))
        self.live += sum(slot.size for slot in absent)
        for slot in absent:
            self._group[slot] = absent
        return absent, self._how.second if backward and self._how.second else self._how.ranks, self._loaded(absent)

    def _loaded(self, slots: Sequence[Slot]) -> list[int]:
        """This rank's parts on their way from the host."""
        if not self._how.offload:
            return []
        lines = [self._line(f"part of {one.name}", (Axis(Dim.ELEMENTS, self.part(one)),)) for one in slots]
        return [event for line in lines for event in (line + 1, -line - 1)]

    def part(self, slot: Slot) -> int:
        """Elements that one rank holds of a parameter."""
        return rows_of(slot.size, self._how.ranks)

    def wait(self, slot: Slot) -> list[int]:
        """A parameter under way is there: the first of a group has all copied, the last lets the flat tensor go."""
        group = self._group.pop(slot, None)
        if group is None or not group[1:]:
            return []
        events: list[int] = []
        if slot not in self.here:
            for one in group:
                self.here[one] = self._line(f"{one.name} (whole)", one.weight.dims)
                events.append(self.here[one] + 1)
        if not any(self._group.get(one) is group for one in group):
            events.append(-self._flat.pop(group) - 1)
        return events

    def release(self, slot: Slot, forward: bool = False) -> list[int]:
        """A parameter that is there goes; in forward its second part is kept, once a step."""
        if slot not in self.here or slot in self._group:
            return []
        self.live -= slot.size
        events = self._gone(slot)
        if forward and self._how.second:
            size = rows_of(self.part(slot) * self._how.ranks, self._how.second)
            line = self._line(f"second part of {slot.name}", (Axis(Dim.ELEMENTS, size),))
            self.second.append(line)
            events.insert(0, line + 1)
        return events

    def _gone(self, slot: Slot) -> list[int]:
        line = self.here.pop(slot)
        if slot not in self._saved:
            return [-line - 1]
        self._saved.remove(slot)
        self._left.setdefault(slot, []).append(line)
        return []

    def save(self, slot: Slot) -> None:
        """A node saved the tensor of a parameter that is there."""
        if slot in self.here:
            self._saved.add(slot)

    def forget(self, slot: Slot) -> list[int]:
        """The node that saved a parameter's tensor has run: the last one that did."""
        if slot in self._saved:
            self._saved.remove(slot)
            return []
        lines = self._left.get(slot)
        return [-lines.pop() - 1] if lines else []

    def _line(self, name: str, dims: tuple[Axis, ...], dtype: DType | None = None) -> int:
        stream = GATHER if self._how.overlap else 0
        made = Made(dtype or self._how.dtype, DEEPSPEED.source, 1, stream, queued=True)
        return self.book.made(Account.GATHERED, name, dims, made)


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
        events = self.gathered.gather(slots, backward)
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
        return self.gathered.gather(found, backward)

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
            self.kept[key] = (
                slot in self.how.persistent or self.recent.get(slot, NEVER) > self.step or self._again(slot)
            )
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
            if slot not in self.how.persistent:
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

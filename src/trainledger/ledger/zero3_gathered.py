"""Parameters that DeepSpeed's ZeRO-3 has gathered or is gathering, as lines.

Source: deepspeed/runtime/zero/partition_parameters.py (0.9.5 to 0.19.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim
from trainledger.facts.deepspeed import DEEPSPEED
from trainledger.facts.dtypes import UINT8, DType
from trainledger.ledger.book import Book, Made
from trainledger.ledger.registered import Slot
from trainledger.ledger.zero3_spread import dims_of, dtype_of
from trainledger.lines.line import Account
from trainledger.lines.shards import rows_of

GATHER = len(("compute", "reduction"))  # the stream of gathers that overlap


@dataclass(frozen=True, slots=True)
class Fetching:
    """Settings: ranks over which a parameter is spread; dtype of what is gathered; elements that one fetch ahead and
    all gathered parameters may have; within how many elements a parameter that is used again stays; of how many at most
    it always stays; whether gathers have a stream of their own, parts lie on the host; ranks of a second part (0:
    none); whether a linear layer's node saves the weight as it was gathered (`torch.nn.functional.linear` as it is) and
    not the parameter, and whether it does in a forward that runs again."""

    ranks: int
    dtype: DType
    prefetch: int
    live: int
    reuse: int
    persistence: int
    overlap: bool
    offload: bool
    second: int
    saved: bool
    remade: bool

    def stays(self, slot: Slot) -> bool:
        """Whether a parameter always stays."""
        return slot.size <= self.persistence


class Gathered:
    """Parameters that are gathered or under way, as lines: a single one is gathered in its own place, several in one
    flat tensor, out of which each is copied when the first of them is waited for. A node that saved a gathered
    parameter's tensor holds it when the parameter is let go."""

    __slots__ = ("_alone", "_copied", "_flat", "_group", "_how", "_left", "_saved", "book", "here", "live", "second")

    def __init__(self, book: Book, how: Fetching) -> None:
        self.book, self._how = book, how
        self.here: dict[Slot, int] = {}  # a gathered parameter's line
        self._group: dict[Slot, tuple[Slot, ...]] = {}  # under way, with those it is gathered with
        self._flat: dict[tuple[Slot, ...], int] = {}
        self._alone: dict[tuple[Slot, int], int] = {}  # lines that were looked up: gathered alone, of so many elements
        self._copied: dict[Slot, int] = {}  # and copied out of a flat tensor
        self._saved: set[Slot] = set()  # gathered, and held by a node too
        self._left: dict[Slot, list[int]] = {}  # let go, and held by nodes alone
        self.live = 0
        self.second: list[int] = []

    def absent(self, slot: Slot) -> bool:
        """Whether a parameter is neither gathered nor under way."""
        return slot not in self.here and slot not in self._group

    @property
    def state(self) -> tuple[object, ...]:
        """What is there, what is under way, what nodes hold, and what is kept to the step."""
        way = tuple((*one, self._flat.get(one[1])) for one in self._group.items())
        left = frozenset((slot, tuple(lines)) for slot, lines in self._left.items() if lines)
        return (frozenset(self.here.items()), way, frozenset(self._saved), left, tuple(self.second))

    @property
    def pending(self) -> tuple[Slot, ...]:
        """Parameters under way."""
        return tuple(self._group)

    def gather(self, slots: Iterable[Slot], backward: bool = False) -> list[int]:
        """Start one gather of those that are absent."""
        absent, ranks, events = self._started(slots, backward)
        if not absent:
            return []
        size, dtype = self._sized(absent, ranks)
        if absent[1:]:
            name = f"{len(absent)} weights gathered at once"
            self._flat[absent] = self._line(name, (Axis(Dim.ELEMENTS, size),), dtype)
            return [*events, self._flat[absent] + 1]
        key = (absent[0], size)
        if key not in self._alone:
            self._alone[key] = self._line(f"{absent[0].name} (whole)", (Axis(Dim.ELEMENTS, size),), dtype)
        self.here[absent[0]] = self._alone[key]
        return [*events, self._alone[key] + 1]

    def _sized(self, slots: Sequence[Slot], ranks: int) -> tuple[int, DType]:
        """Elements of so many parameters' parts, and their dtype: bytes, where not all have one."""
        counts = [(rows_of(slot.size, ranks) * ranks, dtype_of(slot, self._how.dtype)) for slot in slots]
        if len({dtype for _, dtype in counts}) == 1:
            return sum(count for count, _ in counts), counts[0][1]
        return sum(dtype.bytes_of(count) for count, dtype in counts), UINT8

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
        parts = [(one, self.part(one), dtype_of(one, self._how.dtype)) for one in slots]
        lines = [self._line(f"part of {one.name}", (Axis(Dim.ELEMENTS, size),), dtype) for one, size, dtype in parts]
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
                if one not in self._copied:
                    dtype = dtype_of(one, self._how.dtype)
                    self._copied[one] = self._line(f"{one.name} (whole)", dims_of(one), dtype)
                self.here[one] = self._copied[one]
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
            dtype = dtype_of(slot, self._how.dtype)
            line = self._line(f"second part of {slot.name}", (Axis(Dim.ELEMENTS, size),), dtype)
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

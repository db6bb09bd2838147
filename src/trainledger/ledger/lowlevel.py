"""What ColossalAI's LowLevelZeroOptimizer allocates around gradients: a bucket of whole ones, its copies, what is kept.

A gradient waits, whole, until the next one would overflow the bucket; then each is cloned, cut into clones by rank, and
joined flat. Stage 2 keeps this rank's part of the flat sum, stage 1 all of it.
Source: the row in facts/colossal.py: _add_to_bucket, _run_reduction, build_grad_in_bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.dtypes import DType
from trainledger.ledger.arrange import Hooks
from trainledger.ledger.blocks import Walked
from trainledger.ledger.book import Book, Made
from trainledger.ledger.registered import Slot
from trainledger.lines.line import Account
from trainledger.lines.shards import rows_of
from trainledger.lines.stream import Events


@dataclass(frozen=True, slots=True)
class LowLevel:
    """Settings: stage, ranks, dtypes of weights and master weights, elements of a bucket, whether the optimizer is on
    the host."""

    stage: int
    ranks: int
    weights: DType
    master: DType
    bucket: int
    offload: bool

    def part(self, slot: Slot) -> int:
        """Elements of a parameter that each rank updates."""
        return rows_of(slot.size, self.ranks)


class Kept:
    """What stays between micro-batches: reduced gradients (lines), and the parameters they are of."""

    __slots__ = ("lines", "slots")

    def __init__(self) -> None:
        self.lines: list[int] = []
        self.slots: set[Slot] = set()


class LowLevelHooks(Hooks):
    """One micro-batch."""

    def __init__(self, book: Book, how: LowLevel, slots: Sequence[Slot], kept: Kept) -> None:
        self.book, self.how, self.kept = book, how, kept
        self.slots = {(slot.at, slot.weight): slot for slot in slots}
        self.bucket: list[tuple[Slot, int]] = []

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """The hook of each gradient as it comes."""
        events: dict[int, Events] = {}
        for one in walked.arrived:
            slot = self.slots.get((at, one.weight)) or self.slots.get((0, one.weight))
            if slot is not None:
                events[one.at] = (*events.get(one.at, ()), *self._added(slot, one.line))
        return events

    def ended(self) -> Events:
        """What is left is reduced."""
        return tuple(self._reduced())

    def _added(self, slot: Slot, line: int) -> list[int]:
        filled = sum(self.how.part(one) * self.how.ranks for one, _ in self.bucket)
        events = self._reduced() if filled + slot.size > self.how.bucket else []
        self.bucket.append((slot, line))
        return events

    def _reduced(self) -> list[int]:
        """Clones, slices by rank, the flat copy; a second gradient of a parameter is added to the one kept."""
        if not self.bucket:
            return []
        how, bucket, self.bucket = self.how, self.bucket, []
        events, cuts = list[int](), list[int]()
        clone = 0
        for slot, line in bucket:
            made, padded = self._line("clone of a gradient", slot.size), how.part(slot) * how.ranks
            events += [made, *([-clone] if clone else [])]
            if padded > slot.size:
                wide = self._line("gradient, padded", padded)
                events += [wide, -made]
                made = wide
            cuts += [self._line("slice of a gradient", how.part(slot))] * how.ranks
            events += [*cuts[-how.ranks :], -line - 1]
            clone = made
        size = sum(how.part(slot) for slot, _ in bucket)
        joined = [self._line("slices of one rank, joined", size)] * how.ranks if bucket[1:] else []
        flat = self._line("bucket of gradients, flat", size * how.ranks)
        events += [-clone, *joined, flat, *(-one for one in joined)]
        return [*events, *self._stored(bucket, flat, cuts)]

    def _stored(self, bucket: Sequence[tuple[Slot, int]], flat: int, cuts: Sequence[int]) -> list[int]:
        slots, gone = {slot for slot, _ in bucket}, [-one for one in cuts]
        again = slots <= self.kept.slots
        self.kept.slots |= slots
        if self.how.stage == 1:
            if again:
                return [*gone, -flat]
            self.kept.lines.append(flat - 1)
            return gone
        size = sum(self.how.part(slot) for slot in slots)
        made = Made(self.how.weights, LOW_LEVEL.source, self.how.ranks, LOW_LEVEL.stream)
        dims = (Axis(Dim.ELEMENTS, size),)
        part = self.book.made(Account.GRADIENTS, "reduced gradients of a bucket, this rank's part", dims, made)
        if not again:
            self.kept.lines.append(part)
        return [part + 1, *gone, -flat, *([-part - 1] if again else [])]

    def _line(self, name: str, size: int) -> int:
        """The birth of one flat tensor (elements)."""
        dims = (Axis(Dim.ELEMENTS, size),)
        return self.book.made(Account.REDUCTION, name, dims, Made(self.how.weights, LOW_LEVEL.source)) + 1

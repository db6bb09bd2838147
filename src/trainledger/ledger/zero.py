"""DeepSpeed's ZeRO-1 and -2: how weights are flattened group by group, and who owns which part.

Source: deepspeed/runtime/zero/stage_1_and_2.py (0.9.5 to 0.19.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim
from trainledger.facts.deepspeed import DEEPSPEED, FP32_PART
from trainledger.facts.dtypes import DType
from trainledger.ledger.book import Book, Made
from trainledger.ledger.host import Kept
from trainledger.ledger.registered import Slot
from trainledger.lines.line import Account
from trainledger.lines.shards import rows_of


@dataclass(frozen=True, slots=True)
class Dtypes:
    """Of weights, of gradients as they are kept, of reductions, of master weights."""

    weights: DType
    accumulate: DType
    reduce: DType
    master: DType

    @property
    def wide(self) -> bool:
        """Whether gradients are kept in another dtype than that in which they come."""
        return self.accumulate != self.weights


@dataclass(frozen=True, slots=True)
class Zero:
    """DeepSpeed's settings: the stage; ranks over which it shards; the rank looked at (None: the fullest); DeepSpeed's
    release; dtypes; elements of a reduce bucket; whether reductions have a stream of their own, gradients go to one
    buffer, reductions scatter, parameters are dealt out in turn; where the optimizer is offloaded
    to; whether gradients are looked through for overflow."""

    stage: int
    ranks: int
    rank: int | None
    version: str
    dtypes: Dtypes
    bucket: int
    overlap: bool
    contiguous: bool
    scatter: bool
    round_robin: bool
    offload: Kept | None
    checked: bool

    @property
    def came(self) -> DType:
        """The dtype of gradients as the optimizer takes them: ZeRO-1 adds them up in the wider one."""
        return self.dtypes.accumulate if self.stage == 1 else self.dtypes.weights

    @property
    def compact(self) -> bool:
        """Whether only this rank's part of the gradients is kept, in the wider dtype."""
        return self.stage > 1 and self.dtypes.wide and FP32_PART.holds(self.version)


@dataclass(frozen=True, slots=True)
class Group:
    """One group of the optimizer's parameters, flattened in this order: elements of a rank's part, and which ranks own
    how many elements of each parameter."""

    slots: tuple[Slot, ...]
    part: int
    owners: Mapping[Slot, tuple[tuple[int, int], ...]]

    def piece(self, slot: Slot, rank: int) -> int:
        """Elements of a parameter that this rank owns."""
        return sum(size for owner, size in self.owners[slot] if owner == rank)

    def owned(self, rank: int) -> tuple[Slot, ...]:
        """Parameters of which this rank owns a piece, in order."""
        return tuple(slot for slot in self.slots if self.piece(slot, rank))


def groups_of(groups: Iterable[Sequence[Slot]], how: Zero) -> tuple[Group, ...]:
    """Every group that has a parameter, padded so that each rank's part is equal and aligned."""
    return tuple(_group(_turns(slots, how.ranks) if how.round_robin else slots, how.ranks) for slots in groups if slots)


def _turns(slots: Sequence[Slot], ranks: int) -> list[Slot]:
    return [slot for first in range(ranks) for slot in slots[first::ranks]]


def _group(slots: Sequence[Slot], ranks: int) -> Group:
    aligned = DEEPSPEED.alignment * ranks
    part = rows_of(sum(slot.size for slot in slots), aligned) * DEEPSPEED.alignment
    owners: dict[Slot, tuple[tuple[int, int], ...]] = {}
    start = 0
    for slot in slots:
        owners[slot] = tuple(_cut(start, start + slot.size, part))
        start += slot.size
    return Group(tuple(slots), part, owners)


def _cut(start: int, end: int, part: int) -> Iterator[tuple[int, int]]:
    """The owners of a run of elements, each with how many of them."""
    while start < end:
        rank = start // part
        stop = min(end, (rank + 1) * part)
        yield rank, stop - start
        start = stop


def extremes(groups: Sequence[Group], ranks: int) -> tuple[tuple[int, ...], int]:
    """Ranks one of which is the fullest, and the one that keeps the fewest gradients: what a rank owns a piece of is
    kept whole. That is the rank which keeps most at the end; one with a piece of the last parameter, which has its
    gradient while most saved tensors are there; or one with a piece of the first, whose gradient comes last."""
    kept = [0] * ranks
    for group in groups:
        for slot in group.slots:
            for owner, _ in group.owners[slot]:
                kept[owner] += slot.size
    found = [kept.index(max(kept))]
    if groups:
        largest = max(groups, key=lambda group: group.part)
        for slot in (largest.slots[-1], largest.slots[0]):
            found.append(max((owner for owner, _ in largest.owners[slot]), key=kept.__getitem__))
    return tuple(dict.fromkeys(found)), kept.index(min(kept))


def slices(bucket: Sequence[Slot], groups: Sequence[Group], merges: bool) -> list[tuple[int, int]]:
    """A bucket cut by owner: rank and elements of each slice in turn; neighbours of one owner are one if it merges."""
    found: list[tuple[int, int]] = []
    for slot in bucket:
        for owner, size in next(group.owners[slot] for group in groups if slot in group.owners):
            if merges and found and found[-1][0] == owner:
                found[-1] = (owner, found[-1][1] + size)
            else:
                found.append((owner, size))
    return found


def fillings(sizes: Iterable[int], limit: int) -> Iterator[tuple[int, ...]]:
    """Sizes in turn, closed whenever their sum exceeds the limit; the rest last."""
    held: list[int] = []
    for size in sizes:
        held.append(size)
        if sum(held) > limit:
            yield tuple(held)
            held = []
    if held:
        yield tuple(held)


def reduction(book: Book, name: str, size: int, made: tuple[DType, int]) -> int:
    """A flat tensor (elements) of the reduction of gradients; `made`: its dtype, and the stream on which it is made."""
    dtype, stream = made
    return book.made(Account.REDUCTION, name, (Axis(Dim.ELEMENTS, size),), Made(dtype, DEEPSPEED.source, 1, stream))

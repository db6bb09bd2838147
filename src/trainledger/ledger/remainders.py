"""What the allocator leaves unsplit of the segments in which tensors that stay lie.

Tensors that stay (weights, gradients, optimizer states) are packed in the order in which they are made, each into the
smallest free piece that takes it. Exact where they are made one after another in fresh segments, as when a model is
built; otherwise an assumption, until the whole stream is replayed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from trainledger.base.dims import Axis, Dim
from trainledger.base.sources import Basis
from trainledger.facts.allocator import Allocator
from trainledger.facts.dtypes import UINT8
from trainledger.ledger.book import Book
from trainledger.lines.line import Account, Line


def unsplit(sizes: Iterable[int], allocator: Allocator) -> int:
    """Bytes that stay with blocks of these sizes (bytes, rounded, in order) beyond what was asked for."""
    if allocator.splits_all:
        return 0
    small, most, left = allocator.small, allocator.remainder, 0
    free: list[int] = []
    opened: dict[int, int] = {}  # what a new segment for a block of this size leaves
    for block in sizes:
        if block <= small:
            continue
        if free and free[-1] >= block:
            rest = free.pop(bisect_left(free, block)) - block
        elif block in opened:
            rest = opened[block]
        else:
            rest = opened[block] = allocator.opened(block) - block
        if rest > most:
            insort(free, rest)
        else:
            left += rest
    return left


def in_order(lines: Sequence[tuple[int, int]], book: Book) -> Iterable[int]:
    """Bytes of every copy of these lines (line, copies): neighbours of equal counts are one layer, repeated."""
    for count, group in groupby(lines, key=itemgetter(1)):
        layer = [book.lines[line].unit for line, _ in group]
        for _ in range(count):
            yield from layer


@dataclass(frozen=True, slots=True)
class Fresh:
    """Of `needed` bytes, those that exceed what was ever allocated before: they get new segments, the rest is split
    off cached blocks."""

    new: int
    needed: int

    @classmethod
    def above(cls, high: int, end: int, needed: int) -> Fresh:
        """`end` bytes are allocated after the `needed` ones, and at most `high` were before."""
        return cls(min(max(end - high, 0), needed), needed)


ALL_NEW = Fresh(1, 1)


def remainder_line(
    book: Book, account: Account, lines: Sequence[tuple[int, int]], fresh: Fresh = ALL_NEW
) -> tuple[tuple[int, int], ...]:
    """The line of what is left unsplit of these lines' blocks, with one copy; nothing where nothing is left."""
    size = unsplit(in_order(lines, book), book.allocator) * fresh.new // max(fresh.needed, 1)
    size = book.allocator.rounded(size)
    if not size:
        return ()
    dims = (Axis(Dim.ELEMENTS, size),)
    name = f"unsplit ends of blocks of {account.value}"
    why = "ends of segments, too small to be split off; only as much as new segments are needed"
    return ((book.add(Line(account, name, dims, UINT8, size, Basis.ASSUMED, book.allocator.source, why)), 1),)


def bytes_of(lines: Sequence[tuple[int, int]], book: Book) -> int:
    """Bytes of all copies of these lines."""
    return sum(book.lines[line].unit * copies for line, copies in lines)

"""What the allocator leaves unsplit of the segments in which tensors that stay lie.

Tensors that stay (weights, gradients, optimizer states) are packed in the order in which they are made, each into the
smallest free piece that takes it. Exact where they are made one after another in fresh segments, as when a model is
built; otherwise an assumption, until the whole stream is replayed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from trainledger.base.dims import Axis, Dim
from trainledger.base.sources import Basis
from trainledger.facts.allocator import Allocator
from trainledger.facts.dtypes import UINT8
from trainledger.ledger.book import Book
from trainledger.lines.line import Account, Line


def unsplit(sizes: Iterable[int], allocator: Allocator) -> int:
    """Bytes that stay with blocks of these sizes (bytes, in order) beyond what was asked for."""
    if allocator.splits_all:
        return 0
    free: list[int] = []
    left = 0
    for size in sizes:
        block = allocator.rounded(size)
        if block <= allocator.small:
            continue
        at = bisect_left(free, block)
        piece = free.pop(at) if at < len(free) else allocator.opened(block)
        rest = piece - block
        if rest > allocator.remainder:
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


def remainder_line(book: Book, account: Account, lines: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The line of what is left unsplit of these lines' blocks, with one copy; nothing where nothing is left."""
    size = unsplit(in_order(lines, book), book.allocator)
    if not size:
        return ()
    source = book.allocator.source
    dims = (Axis(Dim.ELEMENTS, size),)
    name = f"unsplit ends of blocks of {account.value}"
    why = "ends of shared segments, too small to be split off"
    return ((book.add(Line(account, name, dims, UINT8, size, Basis.ASSUMED, source, why)), 1),)

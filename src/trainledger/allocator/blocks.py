"""Blocks and their pools: what the allocator keeps of a piece of memory, and its sorted free blocks."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from trainledger.facts.allocator_settings import ADDRESSES

BITS = ADDRESSES.bits


class Block:
    """A piece of a segment. Exactly one holds: in use, waiting (`pending` streams or more), free, not mapped."""

    __slots__ = ("address", "base", "free", "mapped", "next", "pending", "pool", "prev", "size", "uses")

    def __init__(self, address: int, size: int, pool: Pool) -> None:
        self.address = address
        self.size = size
        self.pool = pool
        self.prev: Block | None = None
        self.next: Block | None = None
        self.free = False
        self.mapped = True
        self.pending = 0
        self.base = 0  # calls of the pool's search when the block was put into it, for garbage collection
        self.uses: set[int] | None = None


class Pool:
    """Free blocks of one stream and kind. `keys` are sorted by size, then address; `by_key` has their blocks.

    `page` is the unit of mapping; blocks that are not mapped (expandable segments) are in `unmapped`, by address.
    """

    __slots__ = ("by_key", "keys", "page", "phase", "small", "stream", "unmapped")

    def __init__(self, stream: int, small: bool, page: int) -> None:
        self.stream = stream
        self.small = small
        self.page = page
        self.phase = 0  # address of a page's start, modulo the page
        self.keys: list[int] = []
        self.by_key: dict[int, Block] = {}
        self.unmapped: list[Block] = []

    def put(self, block: Block) -> None:
        """A block becomes free. Merging with its neighbours is the caller's."""
        key = block.size << BITS | block.address
        block.free = True
        insort(self.keys, key)
        self.by_key[key] = block

    def take(self, block: Block) -> None:
        """A free block leaves the pool."""
        key = block.size << BITS | block.address
        keys = self.keys
        del keys[bisect_left(keys, key)]
        del self.by_key[key]
        block.free = False

    def hide(self, block: Block) -> None:
        """A block's pages are not mapped."""
        block.mapped = False
        at = bisect_left(self.unmapped, block.address, key=lambda one: one.address)
        self.unmapped.insert(at, block)


@dataclass(frozen=True, slots=True)
class SizePlan:
    """What a size that is asked for leads to (bytes).

    `block`: rounded; `key`: where the search starts; `keep`: a rest of no more than this is not split off; `opened`:
    the segment if no free block takes it; `small`: the pool; `limit`: a free block of this size or more is not taken.
    """

    block: int
    key: int
    keep: int
    opened: int
    small: bool
    limit: int | None


def join(block: Block, other: Block | None) -> bool:
    """Merge a neighbour that is free, or not mapped, as `block` itself is (to be) into `block`; whether it did."""
    if other is None or other.mapped is not block.mapped or (other.mapped and not other.free):
        return False
    if other.mapped:
        block.pool.take(other)
    else:
        block.pool.unmapped.remove(other)
    if block.prev is other:
        block.address = other.address
        block.prev = other.prev
        if other.prev is not None:
            other.prev.next = block
    else:
        block.next = other.next
        if other.next is not None:
            other.next.prev = block
    block.size += other.size
    return True


def link_after(block: Block, new: Block) -> None:
    """Put `new` into the chain of a segment, right after `block`."""
    new.prev, new.next = block, block.next
    if block.next is not None:
        block.next.prev = new
    block.next = new

"""A pool of expandable segments as an automaton: new memory is pages of a range that are not mapped yet."""

from __future__ import annotations

from bisect import bisect_left, insort

from trainledger.allocator.blocks import BITS
from trainledger.allocator.pools import ADDRESS, New, Pool, give
from trainledger.facts.allocator_settings import ADDRESSES


class RangePool(Pool):
    """A pool that maps pages of `page` bytes as they are needed (see `expandable`). An accumulator."""

    segments = False
    __slots__ = ("_holes", "_page", "_ranges")

    def __init__(self, page: int) -> None:
        self._page = page
        self._holes: dict[int, int] = {}  # what is not mapped: where it begins, and where it ends
        self._ranges: set[tuple[int, int]] = set()
        super().__init__()

    def _new(self) -> New:
        return ((self._top, self._top), *sorted(self._holes.items()))

    def _renew(self, new: New) -> None:
        super()._renew(new)
        self._holes = dict(new[1:])

    def _best(self, place: int) -> int:
        """A block that can grow counts as large as it can become."""
        keys = self._keys
        while place + 1 < len(keys):
            grown = self._growth(keys[place])
            if grown == keys[place] >> BITS or self._growth(keys[place + 1]) >= grown:
                break
            place += 1
        return place

    def _growth(self, block: int) -> int:
        size = block >> BITS
        end = (block & ADDRESS) + size
        return size + self._holes.get(end, end) - end

    def _opened(self, size: int) -> tuple[int, int]:
        """A block of at least this size at the lowest address where missing pages can be mapped."""
        start, taken = self._candidate(size), 0
        end = start + (0 if start in self._holes else self._edges[start] >> BITS)
        while end - start < size:
            taken += self._mapped(end, min(size - (end - start), self._holes[end] - end))
            end = start + (self._edges[start] >> BITS)
        block = self._edges.pop(start)
        del self._keys[bisect_left(self._keys, block)]
        return block, taken

    def _candidate(self, size: int) -> int:
        """Where so many bytes that are free or not mapped begin: in a new range, where there are none."""
        for hole in sorted(self._holes):
            before = self._edges.get(hole)
            start = end = hole if before is None else before & ADDRESS
            while end - start < size and (further := self._further(end)):
                end = further
            if end - start >= size:
                return start
        start, extent = self._top, -(-max(ADDRESSES.range, size) // self._page) * self._page
        self._holes[start] = start + extent
        self._ranges.add((start, start + extent))
        self._top += extent + self._page
        return start

    def _further(self, address: int) -> int:
        """Where ends what is free, or not mapped, and begins here; 0 where nothing does."""
        block = self._edges.get(address)
        if block is not None and block & ADDRESS == address:  # not one that ends here
            return address + (block >> BITS)
        return self._holes.get(address, 0)

    def _mapped(self, start: int, size: int) -> int:
        """Map pages from the start of what is not mapped: their bytes."""
        until, mapped = self._holes.pop(start), -(-size // self._page) * self._page
        if start + mapped < until:
            self._holes[start + mapped] = until
        give(self._keys, self._edges, mapped << BITS | start)
        return mapped

    def _emptied(self) -> int:
        """Give whole pages of free blocks back to the device: their bytes."""
        return sum([self._unmapped(key & ADDRESS, key >> BITS) for key in tuple(self._keys)])

    def _unmapped(self, address: int, size: int) -> int:
        first, last = -(-address // self._page) * self._page, (address + size) // self._page * self._page
        if first >= last:
            return 0
        del self._keys[bisect_left(self._keys, size << BITS | address)]
        del self._edges[address], self._edges[address + size]
        for start, end in ((address, first), (last, address + size)):
            if start < end:
                key = self._edges[start] = self._edges[end] = (end - start) << BITS | start
                insort(self._keys, key)
        start = next((start for start, end in self._holes.items() if end == first), first)
        end = self._holes.pop(last, last)
        self._holes.pop(start, None)
        if (start, end) not in self._ranges:  # a range that holds nothing is given up
            self._holes[start] = end
        return last - first

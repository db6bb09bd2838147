"""The caching allocator's own numbers, and the size of the block that a request takes."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.base.units import MIB


@dataclass(frozen=True, slots=True)
class Allocator:
    """Rounding of one request (bytes).

    Every block is a multiple of `granule`. Requests above `small` come from the large pool, where a block is split only
    when more than `remainder` would be left. A request of `own` or more that finds no cached block gets a segment of
    its own, rounded up to `segment`; smaller ones share segments of `shared` bytes. Without `splits_all` (expandable
    segments) what is left of a block, up to `remainder`, stays with it and counts as allocated. The small pool's
    segments are of `small_segment` bytes. Expandable segments map whole pages, of `small_segment` and `shared` bytes.
    """

    granule: int
    small: int
    own: int
    segment: int
    shared: int
    remainder: int
    splits_all: bool
    source: Source
    small_segment: int = 2 * MIB

    def rounded(self, size: int) -> int:
        """Bytes of the block, by granule alone; a request of zero bytes takes none."""
        return -(-size // self.granule) * self.granule

    def opened(self, block: int) -> int:
        """Bytes of the segment that is opened for a large block that no cached one takes."""
        return self.shared if block < self.own else -(-block // self.segment) * self.segment

    def block(self, size: int) -> int:
        """Bytes of the block that a request takes when its segment is its own."""
        block = self.rounded(size)
        if self.splits_all or block < self.own:
            return block
        whole = -(-block // self.segment) * self.segment
        return whole if whole - block <= self.remainder else block


_SOURCE = Source(
    "PyTorch c10/cuda/CUDACachingAllocator.cpp",
    "kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc, kRoundLarge; round_size, "
    "get_allocation_size, should_split",
    "v2.4.0 to v2.13",
)
CUDA = Allocator(512, MIB, 10 * MIB, 2 * MIB, 20 * MIB, MIB, False, _SOURCE)
EXPANDABLE = Allocator(512, MIB, 10 * MIB, 2 * MIB, 20 * MIB, MIB, True, _SOURCE)

"""What a run reserves on a device that has less than it would take without a bound.

What the allocator does not get from the device it goes without: it gives back what it caches, and asks anew. A run that
fits reserves at most what the device has beside the process's context and communicators.
Source: c10/cuda/CUDACachingAllocator.cpp, malloc: release_cached_blocks and a second alloc_block.
"""

from __future__ import annotations

from trainledger.allocator.conf import Conf
from trainledger.allocator.replay import Smallest, replay, smallest_capacity
from trainledger.answer.bands import Band, Outside, Peak
from trainledger.answer.replayed import Replayed
from trainledger.facts.allocator_settings import REPLAY


def smallest_of(
    peak: Peak, outside: Outside, usable: int | None, replayed: tuple[Replayed | None, Conf]
) -> Smallest | None:
    """The smallest capacity on which the run succeeds, where the device may have less than it would reserve, and may
    have enough for its live tensors."""
    run, conf = replayed
    if usable is None or run is None or not least_of(peak, outside) <= usable < outside.above(peak.reserved).high:
        return None
    return smallest_capacity(run.stream, conf, REPLAY.step)


def least_of(peak: Peak, outside: Outside) -> int:
    """The least that the run needs of the device: its live tensors."""
    return min(outside.above(peak.allocated).low, outside.above(peak.reserved).expected)


def within(peaks: tuple[Peak, Peak], room: Band, found: Smallest, replayed: tuple[Replayed, Conf]) -> tuple[Peak, Peak]:
    """The peaks as the device bounds them, which leaves the allocator `room`; as they were where the run does not fit,
    or has as much as it takes. Blocks that wait for another stream lie beside those of the replay as far as there is
    room. High ends stay as they are."""
    if peaks[0].reserved.expected <= room.expected or found.capacity > room.high:
        return peaks
    run, conf = replayed
    bounded = replay(run.stream, conf, room.expected) if room.expected > found.capacity else found.replay
    most = (bounded if bounded.fits else found.replay).peaks.reserved
    whole, steps = (one.reserving(min(most + one.waiting, max(room.expected, most))) for one in peaks)
    return whole, steps

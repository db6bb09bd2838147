"""What the allocator gives back to the device: before it fails, when it is told to, and to stay below a threshold."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainledger.allocator.blocks import BITS, Block, Pool, SizePlan
from trainledger.allocator.expandable import unmap

if TYPE_CHECKING:
    from trainledger.allocator.simulator import Simulator


def release_cached(state: Simulator) -> None:
    """Wait for all streams, then give back every free block that is a whole segment, and every whole free page."""
    state.synchronize()
    for pool in (*state.large.values(), *state.small.values()):
        blocks = [pool.by_key[key] for key in pool.keys]
        for block in blocks:
            if state.conf.expandable:
                unmap(state.device, block)
            elif _whole(block):
                _release(state, block)


def release_oversize(state: Simulator, plan: SizePlan, pool: Pool) -> bool:
    """Give back one oversize block that is as large as the request, or the largest ones until they add up to it.

    Only under max_split_size. False when they do not.
    """
    bound = state.conf.max_split
    if bound is None or state.conf.expandable:
        return False
    wanted = max(plan.block, bound)
    at = bisect_left(pool.keys, wanted << BITS)
    if at < len(pool.keys):
        _release(state, pool.by_key[pool.keys[at]])
        return True
    found = 0
    while pool.keys and found < wanted:
        block = pool.by_key[pool.keys[-1]]
        if block.size < bound:
            break
        found += block.size
        _release(state, block)
    return found >= wanted


def collect(state: Simulator) -> None:
    """garbage_collection_threshold: give back whole free segments of the large pool, those of average age or more
    first, until what is reserved is below the threshold or none is left. Without a known device it does nothing."""
    device = state.device
    bound = device.capacity if device.allowed is None else device.allowed
    if bound is None:
        return
    target = device.reserved - int(state.conf.collect * bound)
    idle = [] if target <= 0 or state.conf.expandable else list(_idle(state))
    while idle and target > 0:
        average = sum(state.ticks - block.base for block in idle) / len(idle)
        old = [block for block in idle if state.ticks - block.base >= average]
        for block in old:
            target -= block.size
            _release(state, block)
        idle = [block for block in idle if state.ticks - block.base < average]


def _idle(state: Simulator) -> Iterator[Block]:
    for pool in state.large.values():
        yield from (block for block in pool.by_key.values() if _whole(block))


def _whole(block: Block) -> bool:
    return block.prev is None and block.next is None


def _release(state: Simulator, block: Block) -> None:
    block.pool.take(block)
    state.device.give(block.size)
    state.device.segments -= 1

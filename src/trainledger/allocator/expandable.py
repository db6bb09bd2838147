"""Expandable segments: ranges of addresses whose pages are mapped as they are needed."""

from __future__ import annotations

from trainledger.allocator.blocks import Block, Pool, SizePlan, join, link_after
from trainledger.allocator.device import Device


def best_expandable(pool: Pool, at: int) -> Block:
    """The free block to use, from place `at` on: a block that can grow counts as large as it can become."""
    keys, by_key = pool.keys, pool.by_key
    block = by_key[keys[at]]
    for place in range(at + 1, len(keys)):
        other = by_key[keys[place]]
        if _growth(other) >= _growth(block):
            break
        block = other
    return block


def _growth(block: Block) -> int:
    after = block.next
    return block.size + (after.size if after is not None and not after.mapped else 0)


def map_pages(device: Device, pool: Pool, plan: SizePlan) -> Block | None:
    """A block of at least `plan.block` bytes at the lowest address where missing pages can be mapped; None: full.

    Pages that were mapped before the device was full stay mapped and free.
    """
    block = _candidate(device, pool, plan.block)
    if not block.mapped and not _map(device, block, min(block.size, plan.block)):
        return None
    while block.size < plan.block:
        after = block.next
        assert after is not None
        if not _map(device, after, min(plan.block - block.size, after.size)):
            return None
        block = after  # the free block before it is merged into it
    pool.take(block)
    return block


def _candidate(device: Device, pool: Pool, size: int) -> Block:
    for block in pool.unmapped:
        first = block.prev if block.prev is not None and block.prev.free else block
        if _room(first, size):
            return first
    extent = -(-max(device.extent, size) // pool.page) * pool.page
    block = Block(device.place(extent + pool.page, pool.page) + pool.phase, extent, pool)
    pool.hide(block)
    return block


def _room(block: Block | None, size: int) -> bool:
    """Whether free and unmapped blocks from this one on add up to `size` bytes."""
    found = 0
    while block is not None and found < size and (block.free or not block.mapped):
        found += block.size
        block = block.next
    return found >= size


def _map(device: Device, block: Block, size: int) -> bool:
    """Map the pages of the first `size` bytes of an unmapped block; it becomes a free one, merged; False: full."""
    pool = block.pool
    mapped = -(-size // pool.page) * pool.page
    if not device.take(mapped):
        return False
    pool.unmapped.remove(block)
    block.mapped = True
    if mapped < block.size:
        rest = Block(block.address + mapped, block.size - mapped, pool)
        link_after(block, rest)
        pool.hide(rest)
        block.size = mapped
    join(block, block.prev)
    join(block, block.next)
    pool.put(block)
    return True


def unmap(device: Device, block: Block) -> None:
    """Give the whole pages of a free block back; what is left of it before and after them stays free."""
    pool = block.pool
    page, phase = pool.page, pool.phase
    first = -(-(block.address - phase) // page) * page + phase
    last = (block.address + block.size - phase) // page * page + phase
    if first >= last:
        return
    pool.take(block)
    end = block.address + block.size
    if first > block.address:
        front = Block(block.address, first - block.address, pool)
        front.prev = block.prev
        if block.prev is not None:
            block.prev.next = front
        front.next, block.prev = block, front
        pool.put(front)
    if end > last:
        back = Block(last, end - last, pool)
        link_after(block, back)
        pool.put(back)
    block.address, block.size, block.mapped = first, last - first, False
    device.give(last - first)
    join(block, block.prev)
    join(block, block.next)
    if block.prev is not None or block.next is not None:
        pool.hide(block)

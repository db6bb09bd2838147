"""The allocator's segments and their pieces, as data: what a recorded run shows, and what a replay ends with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from trainledger.allocator.blocks import Block, Pool, link_after
from trainledger.allocator.simulator import Simulator


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of a segment (bytes): `ident` of its tensor, or 0. A block without a tensor is free or `waits`."""

    size: int
    ident: int = 0
    waits: bool = False


@dataclass(frozen=True, slots=True)
class SegmentState:
    """One segment, or one run of mapped pages of an expandable one: its address, stream, pool and pieces in order."""

    address: int
    stream: int
    small: bool
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Bytes reserved."""
        return sum(piece.size for piece in self.pieces)

    @property
    def allocated(self) -> int:
        """Bytes of live tensors' blocks."""
        return sum(piece.size for piece in self.pieces if piece.ident)

    @property
    def free(self) -> int:
        """Bytes that no tensor uses and none waits for."""
        return sum(piece.size for piece in self.pieces if not piece.ident and not piece.waits)

    @property
    def idle(self) -> bool:
        """Whether the segment is one free block, which can go back to the device."""
        return self.free == self.size


State = tuple[SegmentState, ...]


def load(simulator: Simulator, state: Iterable[SegmentState]) -> None:
    """Put segments into a new simulator. Those of an expandable pool make up one range. Nothing may wait."""
    ordered = sorted(state, key=lambda one: one.address)
    tails: dict[int, Block] = {}
    for segment in ordered:
        pool = simulator.pool(segment.stream, segment.small)
        blocks = list(_blocks(simulator, segment, pool))
        for before, after in pairwise(blocks):
            link_after(before, after)
        if simulator.conf.expandable:
            if id(pool) in tails:
                _gap(tails[id(pool)], blocks[0])
            else:
                pool.phase = segment.address % pool.page
            tails[id(pool)] = blocks[-1]
        else:
            simulator.device.segments += 1
        simulator.device.top = max(simulator.device.top, segment.address + segment.size)
        simulator.device.reserved += segment.size
    for tail in tails.values():
        _gap(tail, None, -(-simulator.device.extent // tail.pool.page) * tail.pool.page)
    simulator.peak_allocated = simulator.allocated
    simulator.peak_active, simulator.peak_reserved = simulator.active, simulator.reserved
    simulator.peak_reserved_allocated = simulator.allocated


def _blocks(simulator: Simulator, segment: SegmentState, pool: Pool) -> Iterator[Block]:
    address = segment.address
    for piece in segment.pieces:
        block = Block(address, piece.size, pool)
        if piece.ident:
            simulator.blocks[piece.ident] = block
            simulator.allocated += piece.size
            simulator.active += piece.size
        else:
            pool.put(block)
        yield block
        address += piece.size


def _gap(tail: Block, head: Block | None, extent: int = 0) -> None:
    """Addresses without pages, between two mapped runs or (`extent` bytes of them) after the last."""
    end = tail.address + tail.size
    size = extent if head is None else head.address - end
    if head is not None:
        tail.next, head.prev = head, tail
    if size:
        block = Block(end, size, tail.pool)
        link_after(tail, block)
        tail.pool.hide(block)


def state_of(simulator: Simulator) -> State:
    """Every segment of a simulator, by address."""
    idents = {id(block): ident for ident, block in simulator.blocks.items()}
    waiting = [block for blocks in simulator.events.values() for block in blocks]
    pools = (*simulator.small.values(), *simulator.large.values())
    free = [block for pool in pools for block in pool.by_key.values()]
    heads: dict[int, Block] = {}
    for block in (*simulator.blocks.values(), *waiting, *simulator.ready, *free):
        if block.prev is None or not block.prev.mapped:
            heads[id(block)] = block
    return tuple(sorted((_segment(head, idents) for head in heads.values()), key=lambda one: one.address))


def _segment(head: Block, idents: dict[int, int]) -> SegmentState:
    pieces = []
    block: Block | None = head
    while block is not None and block.mapped:
        ident = idents.get(id(block), 0)
        pieces.append(Piece(block.size, ident, not ident and not block.free))
        block = block.next
    return SegmentState(head.address, head.pool.stream, head.pool.small, tuple(pieces))

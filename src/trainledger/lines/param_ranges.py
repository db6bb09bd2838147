"""Megatron's distributed optimizer: which elements of every parameter one data-parallel rank owns, in three indices.

Each bucket is divided evenly over the ranks, without regard to where parameters begin or end.
Source: megatron/core/optimizer/distrib_optimizer.py, _build_model_gbuf_range (core_v0.8.0 to core_v0.19.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trainledger.lines.param_buffers import Buffer, Parameter, Placed


class Range(NamedTuple):
    """Elements [start, end)."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """How many."""
        return self.end - self.start

    def less(self, by: int) -> Range:
        """The same elements, counted from `by` on."""
        return Range(self.start - by, self.end - by)


@dataclass(frozen=True, slots=True)
class Piece:
    """What a rank owns of a parameter. `world`: where in the buffer; `in_bucket`: in its bucket; `local`: in this
    rank's shard of it; `within`: in the parameter itself."""

    parameter: Parameter
    bucket: int
    world: Range
    in_bucket: Range
    local: Range
    within: Range


def shard(buffer: Buffer, rank: int) -> tuple[Piece, ...]:
    """The pieces of a buffer that the rank `rank` of those that divide it owns, in the order of the buffer.

    Raises ValueError where the buffer is not divided or has no such rank, and where Megatron-Core stops: before 0.13
    a shared embedding may reach into the bucket before its own, and no rank may own parts of it in both.
    """
    if not buffer.distributed:
        raise ValueError("only the distributed optimizer divides a buffer over the ranks")
    if not 0 <= rank < buffer.ranks:
        raise ValueError(f"rank {rank} is not one of {buffer.ranks}")
    found = [
        _piece(placed, number, (owned, bucket.start))
        for number, bucket in enumerate(buffer.buckets)
        for owned in (_owned(bucket.start, bucket.end, buffer.ranks, rank),)
        for placed in buffer.placed
        if placed.start < owned.end and placed.end > owned.start
    ]
    names = [piece.parameter.name for piece in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"rank {rank} owns parts of {twice} in two buckets, which Megatron-Core refuses")
    return tuple(found)


def _owned(start: int, end: int, ranks: int, rank: int) -> Range:
    size = (end - start) // ranks
    return Range(start + rank * size, start + (rank + 1) * size)


def _piece(placed: Placed, bucket: int, at: tuple[Range, int]) -> Piece:
    owned, offset = at
    world = Range(max(placed.start, owned.start), min(placed.end, owned.end))
    return Piece(placed.parameter, bucket, world, world.less(offset), world.less(owned.start), world.less(placed.start))

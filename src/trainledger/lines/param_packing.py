"""The buffers of parameters that an optimizer takes whole: packed into shards of equal size, so that no shard cuts one.

A bucket has one shard for each rank that shards it; a shard is as long as the fullest one. Newer releases pack by what
Newton-Schulz iterations cost, which add up over buckets, and take into a bucket what its shards have room for.
Source: megatron/core/optimizer/layer_wise_optimizer.py, LayerWiseDistributedOptimizer._compute_per_buffer_param_layout
(core_v0.18.0, core_v0.19.0, main of 2026-08).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import NamedTuple

from trainledger.facts.megatron_buffers import ALIGNMENT, PACKED_BY_COST, PACKING
from trainledger.lines.shards import rows_of


class Matrix(NamedTuple):
    """A parameter to pack: its elements and rows."""

    elements: int
    rows: int

    @property
    def cost(self) -> int:
        """Of one Newton-Schulz iteration, in products."""
        small, big = sorted((self.rows, self.elements // self.rows))
        return big * small * small


class Packed(NamedTuple):
    """A bucket at elements [start, end): where each parameter, by its number, begins."""

    start: int
    end: int
    placed: dict[int, int]


@dataclass(frozen=True, slots=True)
class _Packing:
    """`unit`: a shard's length is its multiple; `costs`: of each shard's parameters so far."""

    ranks: int
    unit: int
    by_cost: bool
    costs: list[int] = field(default_factory=list)
    buckets: list[Packed] = field(default_factory=list)

    def close(self, chunk: Sequence[int], matrices: Sequence[Matrix]) -> None:
        """A bucket of these."""
        ends, found = [0] * self.ranks, dict[int, tuple[int, int]]()
        total = sum(matrices[at].elements for at in chunk)
        for at in sorted(chunk, key=lambda at: -(matrices[at].cost if self.by_cost else matrices[at].elements)):
            shard = self._shard(ends, matrices[at], total)
            start = _from(ends[shard])
            found[at] = shard, start
            ends[shard] = start + matrices[at].elements
            self.costs[shard] += matrices[at].cost
        length = rows_of(max(ends), self.unit) * self.unit
        start = self.buckets[-1].end if self.buckets else 0
        placed = {at: start + shard * length + inner for at, (shard, inner) in found.items()}
        self.buckets.append(Packed(start, start + self.ranks * length, placed))

    def _shard(self, ends: Sequence[int], one: Matrix, total: int) -> int:
        """The shard that takes a parameter: of those that it does not overfill, the one whose own cost least."""
        most = total / self.ranks * PACKING.overfull
        fitting = [at for at in range(self.ranks) if _from(ends[at]) + one.elements <= most] if self.by_cost else []
        return min(fitting, key=self.costs.__getitem__) if fitting else min(range(self.ranks), key=ends.__getitem__)


def _from(end: int) -> int:
    """Where a parameter may begin that comes after `end`."""
    return rows_of(end, ALIGNMENT.start) * ALIGNMENT.start


def packed(matrices: Sequence[Matrix], ranks: int, end: int, bucket: int | None, release: str) -> tuple[Packed, ...]:
    """The buckets, from parameters in the order of backward. `end`: elements whose multiple a bucket's size is."""
    by_cost = PACKED_BY_COST.holds(release)
    packing = _Packing(ranks, lcm(ALIGNMENT.start, end // ranks), by_cost, [0] * ranks)
    chunk, loads = list[int](), [0] * ranks
    for at, one in enumerate(matrices):
        if by_cost and _full(chunk, matrices, bucket, ranks) and not _has_room(loads, one, packing.unit):
            packing.close(chunk, matrices)
            chunk, loads = [], [0] * ranks
        least = loads.index(min(loads))
        loads[least] = _from(loads[least]) + one.elements
        chunk.append(at)
        if not by_cost and _full(chunk, matrices, bucket, ranks):
            packing.close(chunk, matrices)
            chunk = []
    if chunk:
        packing.close(chunk, matrices)
    return tuple(packing.buckets)


def _full(chunk: Sequence[int], matrices: Sequence[Matrix], bucket: int | None, ranks: int) -> bool:
    """Whether a bucket has enough: its size, and most of what its largest parameter makes of it."""
    if bucket is None or not chunk:
        return False
    sizes = [matrices[at].elements for at in chunk]
    return sum(sizes) >= max(bucket, int(ranks * max(sizes) * PACKING.filled))


def _has_room(loads: Sequence[int], one: Matrix, unit: int) -> bool:
    """Whether one more parameter makes the shards no longer."""
    return _from(min(loads)) + one.elements <= rows_of(max(loads), unit) * unit

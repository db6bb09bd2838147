"""What each rank reads of a checkpoint whose tensors are cut anew, as PyTorch's distributed checkpoint does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from trainledger.answer.resume_cuts import Cut, Held, Placed, placed, read_of
from trainledger.answer.saved_sizes import Sizes, sized
from trainledger.model.program import Model, Weight
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

Bytes = Callable[[Sizes], int]


class Part(NamedTuple):
    """A plan, its model, and over how many ranks the rows of its weights are spread."""

    plan: Plan
    model: Model
    shard: int


class Row(NamedTuple):
    """A stored kind of weight, the layers whose one a rank reads, and what it reads of each."""

    old: Placed
    layers: frozenset[int]
    held: Held


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes that the rank which reads most reads, and of how many of the old ranks' tensors; bytes of all ranks; the
    largest tensor that one reads at a time."""

    most: int
    writers: int
    total: int
    largest: int


def sliced(old: Part, new: Part, bytes_of: Bytes, replicas: int) -> Reading:
    """Tensors of the old plan as the new plan's ranks read them, each of `replicas` times."""
    sizes = {one.weight: one for one in sized(old.plan, old.model)}
    pairs = list(zip(placed(*old), placed(*new), strict=True))
    most, writers, total = 0, 0, 0
    for stage, part, at in product(range(degrees(new.plan).pp), range(new.plan.parallel.tp), range(new.shard)):
        rows = list(_rows(pairs, stage, (part, new.plan.parallel.tp), at))
        size = sum(
            _bytes(bytes_of(sizes[one.old.weight]), one.held.read, one.old.cut) * len(one.layers) for one in rows
        )
        total += size * replicas
        if size > most:
            most, writers = size, len(set(_writers(rows)))
    return Reading(most, writers, total, _largest(pairs, sizes, bytes_of))


def _rows(pairs: Sequence[tuple[Placed, Placed]], stage: int, part: tuple[int, int], at: int) -> Iterator[Row]:
    """What a rank of a stage reads: a number among tensor-parallel ranks, and the `at`th of those that shard."""
    number, ranks = part
    for before, after in pairs:
        if stage in after.stages:
            held = read_of(before.cut, after.cut, number * after.cut.tp // ranks, at)
            yield Row(before, after.stages[stage], held)


def _bytes(whole: int, elements: int, cut: Cut) -> int:
    """Bytes of so many elements of a weight that takes `whole` in all."""
    return -(-whole * elements // prod(cut.shape))


def _writers(rows: Sequence[Row]) -> Iterator[tuple[int, int, int]]:
    """The old ranks, by stage, part and chunk, whose tensors are read."""
    for one in rows:
        for stage, layers in one.old.stages.items():
            if layers & one.layers:
                yield from ((stage, part, at) for part, at in one.held.of)


def _largest(pairs: Sequence[tuple[Placed, Placed]], sizes: Mapping[Weight, Sizes], bytes_of: Bytes) -> int:
    """Bytes of the largest stored tensor of those that are counted."""
    found = 0
    for (weight, cut, _), _ in pairs:
        one = sizes[weight]
        counted = [size for size in one.tensors if size <= bytes_of(one)]
        found = max(found, _bytes(max(counted, default=0), read_of(cut, cut, 0, 0).read, cut))
    return found

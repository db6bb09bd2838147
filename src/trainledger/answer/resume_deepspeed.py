"""What ranks read of DeepSpeed's checkpoints: each its own part, or, once it is converted, whole parameters.

Converted, a parameter's fp32 weight and each of its states is a file. Under stages 1 and 2 a rank reads the files of
every parameter that its partition of the flat group has a piece of; under stage 3 those of all.
Source: the rows in facts/checkpoints.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainledger.answer.saved_sizes import Sizes, sized
from trainledger.facts.checkpoints import UNIVERSAL
from trainledger.facts.dtypes import FP32
from trainledger.model.counts import layered
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan


class Files(NamedTuple):
    """A parameter's files: its elements, their bytes, how many, and the largest."""

    elements: int
    bytes: int
    number: int
    largest: int


class Converted(NamedTuple):
    """A conversion: bytes that its processes hold at once, that it writes, and that lie on disk with what it writes
    meanwhile."""

    host: int
    written: int
    disk: int


def parameters(plan: Plan, model: Model) -> list[Files]:
    """The files of every trained parameter, in the order of the model."""
    sizes = {one.weight: one for one in sized(plan, model) if one.trained}
    rows = ((weights, layers) for weights, layers in layered(model))
    return [
        _files(sizes[weight])
        for weights, layers in rows
        for _ in range(layers)
        for weight in weights
        if weight in sizes
    ]


def _files(one: Sizes) -> Files:
    wide = FP32.bytes_of(one.weight.elements)
    return Files(one.weight.elements, wide + sum(one.states), 1 + len(one.states), max((wide, *one.states)))


def read_whole(plan: Plan, model: Model, other: Plan) -> tuple[list[tuple[int, int]], int]:
    """By rank of the other plan, bytes and files of the parameters that it reads; the largest file."""
    rows, ranks = parameters(plan, model), degrees(other).shard
    largest = max((one.largest for one in rows), default=0)
    if other.parallel.strategy == "zero3":
        return [(sum(one.bytes for one in rows), sum(one.number for one in rows))] * ranks, largest
    total = sum(one.elements for one in rows)
    size = -(-total // ranks)
    return [_partition(rows, at * size, min((at + 1) * size, total)) for at in range(ranks)], largest


def _partition(rows: list[Files], low: int, high: int) -> tuple[int, int]:
    found = list(_overlapping(rows, low, high))
    return sum(one.bytes for one in found), sum(one.number for one in found)


def _overlapping(rows: list[Files], low: int, high: int) -> Iterator[Files]:
    start = 0
    for one in rows:
        if start < high and start + one.elements > low:
            yield one
        start += one.elements


def conversion(plan: Plan, model: Model, part: int, weights: int) -> Converted:
    """ds_to_universal of a checkpoint whose largest file of the optimizer is `part` and whose model states, which are
    copied, are `weights`."""
    rows = parameters(plan, model)
    states = sum(one.bytes for one in rows)
    joined = max((one.largest for one in rows), default=0) * UNIVERSAL.copies  # parts, and what they are joined to
    host = max(UNIVERSAL.extract * part, UNIVERSAL.merge * joined)
    return Converted(host, states + weights, UNIVERSAL.copies * states + weights)

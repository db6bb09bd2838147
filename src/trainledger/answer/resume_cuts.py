"""How a checkpoint's tensors are cut over the ranks that wrote them, and what another rank reads of them.

A stored tensor is a box: a span of each dim. A rank reads every box that overlaps its own, whole. Source: the rows in
facts/checkpoints.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from trainledger.facts.megatron import FRAMEWORKS
from trainledger.ledger.mega_run import parts_of
from trainledger.ledger.tensor_parallel import spread
from trainledger.lines.local import local_model
from trainledger.model.program import Model, Weight
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan
from trainledger.plan.stages import Chunk, split_of, stages

Span = tuple[int, int]
END = frozenset({-1})  # the layer of what lies before and after the layers
Places = frozenset[tuple[int, int]]  # numbers among tensor-parallel ranks, and among those that shard


class Held(NamedTuple):
    """What a rank reads of one weight: elements of its own, of all boxes that it reads, and whose they are."""

    own: int
    read: int
    of: Places


@dataclass(frozen=True, slots=True)
class Cut:
    """A weight's dims; the dim that tensor parallelism spreads over `tp` ranks (None: each has all of it); over how
    many ranks the first dim of each part is then spread in equal chunks, the last of them smaller or empty."""

    shape: tuple[int, ...]
    along: int | None
    tp: int
    shard: int

    def span(self, dim: int, part: int, at: int) -> Span:
        """What one rank has of a dim: of part `part`, chunk `at`."""
        size, start = self.shape[dim], 0
        if dim == self.along:
            size //= self.tp
            start = part * size
        if dim == 0:
            rows = -(-size // self.shard)
            first = min(at * rows, size)
            return start + first, start + min(first + rows, size)
        return start, start + size

    def boxes(self, dim: int, wanted: Span) -> Iterator[tuple[Span, int, int]]:
        """Spans of a dim that overlap a wanted one, with part and chunk."""
        low, high = wanted
        size = self.shape[dim] // (self.tp if dim == self.along else 1)
        if low >= high or not size:
            return
        rows = -(-size // self.shard) if dim == 0 else size
        for part in range(low // size, -(-high // size)):
            inner = (max(low - part * size, 0), min(high - part * size, size))
            for at in range(inner[0] // rows, -(-inner[1] // rows)):
                yield (part * size + at * rows, part * size + min((at + 1) * rows, size)), part, at


def read_of(old: Cut, new: Cut, part: int, at: int) -> Held:
    """What rank (`part`, `at`) of the new cut reads of a tensor that was stored in the old one."""
    shape = old.shape or (1,)
    wanted = [new.span(dim, part, at) for dim in range(len(shape))] if old.shape else [(0, 1)]
    own = prod(high - low for low, high in wanted)
    if not own:
        return Held(0, 0, frozenset())
    found = [list(old.boxes(dim, span)) for dim, span in enumerate(wanted)] if old.shape else [[((0, 1), 0, 0)]]
    read = prod(sum(high - low for (low, high), _, _ in row) for row in found)
    rows = frozenset((one, at) for _, one, at in found[0])
    if old.along:  # rows have no parts of their own
        rows = frozenset(product((one for _, one, _ in found[old.along]), (at for _, at in rows)))
    return Held(own, read, rows)


class Placed(NamedTuple):
    """Equal weights: one of them, how it is cut, and by pipeline stage the layers that have one there (of the model's
    ends a layer of their own)."""

    weight: Weight
    cut: Cut
    stages: dict[int, frozenset[int]]


def placed(plan: Plan, model: Model, shard: int) -> list[Placed]:
    """Every kind of weight of a plan's model, over its stages and ranks; `shard`: ranks over which rows are spread."""
    local = local_model(model, parts_of(plan)) if plan.stack.framework in FRAMEWORKS else spread(model, plan)
    layers = sum(block.count for block in model.blocks)
    chunks = stages(split_of(plan, layers)) if degrees(plan).pp > 1 else (Chunk(0, 0, 0, layers, True, 0, True),)
    rows = zip(_owned(model, chunks), _owned(local, chunks), strict=True)
    return [Placed(whole, _cut(whole, own, shard), where) for (whole, where), (own, _) in rows]


def _owned(model: Model, chunks: Sequence[Chunk]) -> Iterator[tuple[Weight, dict[int, frozenset[int]]]]:
    """Weights with the layers that have one on each stage."""
    for weight in model.embeddings:
        yield weight, {chunk.rank: END for chunk in chunks if chunk.embedding}
    for block in model.blocks:
        where: dict[int, frozenset[int]] = {}
        for chunk in chunks:
            here = frozenset(block.layers) & frozenset(range(chunk.first, chunk.first + chunk.layers))
            where[chunk.rank] = where.get(chunk.rank, frozenset()) | here
        for weight in block.weights:
            yield weight, {stage: layers for stage, layers in where.items() if layers}
    for weight in model.head.weights:
        if not weight.tied:
            yield weight, {chunk.rank: END for chunk in chunks if chunk.loss}


def _cut(whole: Weight, own: Weight, shard: int) -> Cut:
    """Parts as there are: fewer than ranks where these have the same one."""
    along = next((at for at, (a, b) in enumerate(zip(whole.shape, own.shape, strict=True)) if a != b), None)
    return Cut(whole.shape, along, 1 if along is None else whole.shape[along] // own.shape[along], shard)

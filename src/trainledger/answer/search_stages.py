"""Which layers the ranks of a pipeline hold, by kind, for every split that a search has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainledger.answer.search_shape import Shape
from trainledger.answer.search_space import Floats, Grid, Ints, copied
from trainledger.plan.schema import Plan
from trainledger.plan.stages import LAYOUT, Chunk, split_of, stages

Key = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Split:
    """The chunks of a split's ranks, each as layers by kind and passes of the output layer."""

    ranks: tuple[tuple[tuple[int, ...], ...], ...]

    def whole(self, rank: int) -> tuple[int, ...]:
        """All that a rank holds."""
        return tuple(map(sum, zip(*self.ranks[rank], strict=True)))


class Stages:
    """The splits of a grid's meshes, and sums over what their ranks hold."""

    def __init__(self, base: Plan, grid: Grid, shape: Shape) -> None:
        self.shape = shape
        keys = [(mesh.pp, mesh.vpp, mesh.layout) for mesh in grid.meshes]
        self.keys = tuple(dict.fromkeys(keys))
        self.splits = tuple(split_at(base, shape, key) for key in self.keys)
        numbers = {key: at for at, key in enumerate(self.keys)}
        by_mesh = np.array([numbers[key] for key in keys], dtype=np.int64)
        self.row: Ints = by_mesh[grid.column("mesh")]
        distinct = [tuple(dict.fromkeys(one.whole(rank) for rank in range(len(one.ranks)))) for one in self.splits]
        self.held: Ints = _padded(distinct)

    def at(self, stage: int) -> Floats:
        """What a stage holds (candidates, kinds + 1); -1: the last; one that there is not stands for the first."""
        made = [one.whole(stage if stage < len(one.ranks) else 0) for one in self.splits]
        found: Floats = np.array(made, dtype=np.float64)[self.row]
        return found

    def longest(self, seconds: Sequence[Floats], head: Floats) -> Floats:
        """Layers by kind, and passes of the output layer, of the rank that takes longest: (candidates, kinds + 1).
        `seconds`: of one layer of each kind; `head`: of the output layer."""
        best, chosen = np.full(len(self.row), -1.0), np.zeros((len(self.row), len(seconds) + 1))
        for at in range(self.held.shape[1]):
            held = self.held[self.row, at].astype(np.float64)
            total = sum((held[:, kind] * one for kind, one in enumerate(seconds)), held[:, -1] * head)
            more = total > best
            best, chosen = np.where(more, total, best), np.where(more[:, None], held, chosen)
        return chosen

    def most(self, values: Sequence[Floats]) -> Floats:
        """The largest sum of a value of each layer over the ranks of each candidate."""
        best = np.zeros(len(self.row))
        for at in range(self.held.shape[1]):
            held = self.held[self.row, at].astype(np.float64)
            best = np.maximum(best, summed(held, values))
        return best


def summed(held: Floats, values: Sequence[Floats]) -> Floats:
    """The sum of a value of each layer, over layers by kind (candidates, kinds + 1)."""
    found = np.zeros(len(held))
    for kind, one in enumerate(values):
        found = found + held[:, kind] * one
    return found


def split_at(base: Plan, shape: Shape, key: Key) -> Split:
    """The split of so many ranks and chunks, even or by its layout."""
    pp, vpp, layout = key
    options = {**base.parallel.options, **({LAYOUT: layout} if layout else {})}
    plan = copied(base, {"pp": pp, "vpp": vpp, "options": options, "schedule": None}, {})
    kinds = {layer: at for at, kind in enumerate(shape.kinds) if not kind.further for layer in kind.layers}
    further = next((at for at, kind in enumerate(shape.kinds) if kind.further), None)
    made: list[list[tuple[int, ...]]] = [[] for _ in range(pp)]
    for chunk in stages(split_of(plan, shape.layers, shape.further)):
        made[chunk.rank].append(_counted(chunk, kinds, further, len(shape.kinds)))
    return Split(tuple(map(tuple, made)))


def _counted(chunk: Chunk, kinds: dict[int, int], further: int | None, width: int) -> tuple[int, ...]:
    counts = [0] * (width + 1)
    for layer in range(chunk.first, chunk.first + chunk.layers):
        counts[kinds[layer]] += 1
    if further is not None:
        counts[further] += chunk.mtp
    counts[-1] = chunk.loss + chunk.mtp
    return tuple(counts)


def _padded(rows: Sequence[Sequence[tuple[int, ...]]]) -> Ints:
    """Compositions of each split's ranks as one array; shorter lists repeat their last."""
    longest = max(map(len, rows))
    filled = [[*one, *[one[-1]] * (longest - len(one))] for one in rows]
    return np.array(filled, dtype=np.int64)

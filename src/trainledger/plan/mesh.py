"""The mesh of a run: the axes along which its ranks lie, each rank's coordinates, and classes of equal ranks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from trainledger.facts.meshes import (
    CP,
    DP,
    EDP,
    EP,
    ETP,
    MEGATRON,
    MEGATRON_PP_FIRST,
    NESTINGS,
    PP,
    PP_FIRST_OPTION,
    REPLICATE,
    SHARD,
    TITAN,
    TP,
    Nesting,
)
from trainledger.plan.degrees import degrees
from trainledger.plan.runs import Run, joined, run_of
from trainledger.plan.schema import Plan

Axes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Mesh:
    """Axes and their degrees from the fastest-varying to the slowest: of dense layers, and of experts.

    Both cover every rank of the world. `dp` counts replicas of the batch; torchtitan's is `dp_shard` x `dp_replicate`.
    `edp` counts the ranks that hold the same experts' shards; torchtitan's lie within one replica.
    """

    dense: Axes
    experts: Axes

    @property
    def world(self) -> int:
        """All ranks."""
        return prod(size for _, size in self.dense)

    def size(self, axis: str) -> int:
        """The degree along an axis of either kind. Raises KeyError for one that there is not."""
        return dict((*self.experts, *self.dense))[axis]


@dataclass(frozen=True, slots=True)
class Role:
    """A class of ranks with equal memory: what they have in common (`key`), their pipeline stage, and the ranks.

    `first` is the lowest of them, which stands for all.
    """

    key: Hashable
    stage: int
    ranks: tuple[Run, ...]

    @property
    def first(self) -> int:
        """The lowest rank."""
        return self.ranks[0].first

    @property
    def count(self) -> int:
        """How many ranks there are."""
        return sum(run.count for run in self.ranks)


def nesting_of(plan: Plan) -> Nesting:
    """How the plan's framework nests its axes. Those without a row of their own nest like torch's device meshes."""
    row = NESTINGS.get(plan.stack.framework, TITAN)
    return MEGATRON_PP_FIRST if row is MEGATRON and plan.parallel.options.get(PP_FIRST_OPTION) is True else row


def mesh_of(plan: Plan) -> Mesh:
    """The mesh of a plan whose degrees divide the world (see answer.check_mesh); what does not divide is rounded down.

    Left out, etp is tp in Megatron-Core, and 1 in torchtitan where experts are spread.
    """
    row, ranks = nesting_of(plan), degrees(plan)
    etp = expert_tensor_degree(plan)
    replicas = _replicas(plan) if REPLICATE in row.dense else 1
    inside = max(ranks.world // max(ranks.pp * replicas * etp * ranks.ep, 1), 1)
    sizes = {
        TP: ranks.tp, CP: ranks.cp, DP: ranks.dp, PP: ranks.pp, SHARD: ranks.dp // replicas, REPLICATE: replicas,
        ETP: etp, EP: ranks.ep, EDP: inside,
    }  # fmt: skip
    return Mesh(tuple((name, sizes[name]) for name in row.dense), tuple((name, sizes[name]) for name in row.experts))


def expert_tensor_degree(plan: Plan) -> int:
    """Ranks over which each expert's matrices are sharded: the plan's etp, else the framework's default."""
    given, whole = plan.parallel.etp, nesting_of(plan).whole_experts and plan.parallel.ep > 1
    return given if given is not None else 1 if whole else plan.parallel.tp


def _replicas(plan: Plan) -> int:
    """Copies of the sharded weights: dp x cp over the ranks that shard; 1 where the plan shards over all of dp."""
    ranks, given = degrees(plan), plan.parallel.shard
    if given is None or given >= ranks.dp * ranks.cp:
        return 1
    copies = ranks.dp * ranks.cp // given
    return copies if ranks.dp % copies == 0 else max(ranks.dp // given, 1)


def coordinates(mesh: Mesh, rank: int) -> dict[str, int]:
    """Where a rank lies along every axis of both kinds. Raises IndexError for a rank that there is not."""
    if not 0 <= rank < mesh.world:
        raise IndexError(f"rank {rank} of a world of {mesh.world}")
    place = {}
    for axes in (mesh.experts, mesh.dense):
        rest = rank
        for name, size in axes:
            place[name] = rest % size
            rest //= size
    return place


def ranks_of(mesh: Mesh, **where: int) -> tuple[Run, ...]:
    """The ranks at these coordinates, in few runs. Axes that are not named are free.

    Raises KeyError for an axis that there is not, IndexError for a coordinate outside its degree.
    """
    for name, at in where.items():
        if not 0 <= at < mesh.size(name):
            raise IndexError(f"{name} {at} of {mesh.size(name)}")
    dense = {name for name, _ in mesh.dense}
    if where.keys() <= dense:
        return _placed(mesh.dense, where)
    if where.keys() <= {name for name, _ in mesh.experts}:
        return _placed(mesh.experts, where)
    there = _placed(mesh.dense, {name: at for name, at in where.items() if name in dense})
    wanted = {name: at for name, at in where.items() if name not in dense}
    return joined(
        run_of(rank)
        for run in there
        for rank in run
        if all(coordinates(mesh, rank)[name] == at for name, at in wanted.items())
    )


def _placed(axes: Axes, where: Mapping[str, int]) -> tuple[Run, ...]:
    """Ranks with some coordinates fixed: the longest stretch of free axes is a run, the other ones count runs."""
    base, blocks = 0, list[tuple[int, int]]()  # (stride, count) of each stretch of free axes that lie side by side
    stride, open_ = 1, False
    for name, size in axes:
        if name in where:
            base += where[name] * stride
        elif open_:
            blocks[-1] = (blocks[-1][0], blocks[-1][1] * size)
        else:
            blocks.append((stride, size))
        # an axis of one rank does not part the stretches beside it
        open_, stride = (name not in where) or (open_ and size == 1), stride * size
    longest = max(blocks, key=lambda block: block[1], default=(1, 1))
    others = [range(0, step * count, step) for step, count in blocks if (step, count) != longest]
    starts = sorted(base + sum(offsets) for offsets in product(*others))
    step, count = longest
    return joined(Run(start, start + (count - 1) * step, step if count > 1 else 1) for start in starts)


def roles(
    mesh: Mesh, classify: Callable[[Mapping[str, int]], Hashable] | None = None, axes: Sequence[str] = ()
) -> tuple[Role, ...]:
    """Classes of ranks with equal memory, by their lowest rank: pipeline stages and, within each, what `classify` tells
    apart.

    `classify` is given the coordinates along `axes` and pp (dense axes, or experts' axes) and called once for each
    combination of these alone, however many ranks share it.
    """
    names = tuple(dict.fromkeys((PP, *axes)))
    classes: dict[tuple[int, Hashable], list[Run]] = {}
    for place in _combinations(mesh, names):
        key = classify(place) if classify is not None else None
        classes.setdefault((place[PP], key), []).extend(ranks_of(mesh, **place))
    found = [Role(key, stage, joined(runs)) for (stage, key), runs in classes.items()]
    return tuple(sorted(found, key=lambda role: role.first))


def _combinations(mesh: Mesh, names: Sequence[str]) -> Iterator[dict[str, int]]:
    for places in product(*(range(mesh.size(name)) for name in names)):
        yield dict(zip(names, places, strict=True))

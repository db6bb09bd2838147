"""Every legal plan of a goal as columns: meshes that pass the plan's own checks, times batches, times policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from trainledger.answer.check import check, check_model
from trainledger.answer.search_goal import DEGREES, Candidate, Goal, plan_of
from trainledger.answer.search_layout import balanced
from trainledger.base.problems import InputError, Problem
from trainledger.facts.roofline import TRAFFIC
from trainledger.facts.search_space import AXES, BLOCKS, NONE, SPREADS, Policy
from trainledger.lines.pipeline import pipeline_of
from trainledger.lines.schedules import schedule_problems
from trainledger.model.build import model_of
from trainledger.model.program import Model
from trainledger.plan.groups import groups_of
from trainledger.plan.schema import Plan
from trainledger.plan.stages import LAYOUT

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
COLUMNS = ("mesh", "micro_batch", "accumulation", "policy", "way")


@dataclass(frozen=True, slots=True)
class Mesh:
    """Degrees that can be, the layout of their stages (empty: even), and the communicators a rank opens."""

    tp: int
    cp: int
    pp: int
    vpp: int
    ep: int
    etp: int
    layout: str
    groups: int

    @property
    def inner(self) -> int:
        """Ranks of one replica."""
        return self.tp * self.cp * self.pp


@dataclass(frozen=True, slots=True)
class Way:
    """A strategy, and the ranks that shard (0: all)."""

    strategy: str
    shard: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Candidates as columns of numbers: of the mesh, the policy and the way, and the batch. `refused`: how many meshes
    the plan's checks refused."""

    meshes: tuple[Mesh, ...]
    policies: tuple[Policy, ...]
    ways: tuple[Way, ...]
    columns: Ints
    refused: int
    layers: int

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def column(self, name: str) -> Ints:
        """A column: of COLUMNS, or a degree of the candidates' meshes."""
        if name in COLUMNS:
            found: Ints = self.columns[COLUMNS.index(name)]
            return found
        values: Ints = np.array([getattr(mesh, name) for mesh in self.meshes], dtype=np.int64)
        return values[self.column("mesh")]

    def candidate(self, row: int) -> Candidate:
        """The candidate of a row."""
        at = dict(zip(COLUMNS, (int(one) for one in self.columns[:, row]), strict=True))
        mesh, policy, way = self.meshes[at["mesh"]], self.policies[at["policy"]], self.ways[at["way"]]
        return Candidate(
            way.strategy, way.shard, mesh.tp, mesh.cp, mesh.pp, mesh.vpp, mesh.ep, mesh.etp, at["micro_batch"],
            policy, block_of(policy, self.layers, mesh.pp * mesh.vpp), mesh.layout,
        )  # fmt: skip


def block_of(policy: Policy, layers: int, stages: int) -> int:
    """Layers of a chunk that run twice, where the policy is a share of them; 0 where it is not."""
    if policy.name != BLOCKS.name:
        return 0
    return max(int(-(-layers // stages) * policy.block), 1)


def base_plan(goal: Goal) -> Plan:
    """The goal's plan on one device of one stage: what other plans are copied from."""
    alone = replace(goal, devices=1, global_batch=1)
    strategy = "none" if not goal.megatron else goal.space.strategies[0]
    return plan_of(alone, Candidate(strategy, 0, 1, 1, 1, 1, 1, 1, 1, NONE))


def copied(plan: Plan, parallel: Mapping[str, object], batch: Mapping[str, object]) -> Plan:
    """A plan with other degrees and batch, its other keys as they were resolved."""
    return plan.model_copy(
        update={
            "parallel": plan.parallel.model_copy(update=parallel),
            "batch": plan.batch.model_copy(update=batch),
        }
    )


def grid_of(goal: Goal) -> Grid:
    """Every candidate of a goal. Raises InputError where there is none."""
    base = base_plan(goal)
    model = model_of(base)
    meshes, refused = meshes_of(goal, base, model)
    ways = tuple(_ways(goal))
    policies = tuple(one for one in goal.policies if one.name != BLOCKS.name or sum(b.count for b in model.blocks) > 1)
    rows = [row for at, mesh in enumerate(meshes) for row in _batches(goal, base, (at, mesh))]
    if not rows:
        found = f"{goal.global_batch} sequences of {goal.sequence} tokens on {goal.devices} devices"
        fix = "Choose a batch that is a multiple of the devices, or fewer of these."
        raise InputError([Problem("--global-batch", found, "no legal plan has these", fix)])
    batches = np.array(rows, dtype=np.int64)
    layers = sum(block.count for block in model.blocks)
    columns = _crossed(batches, _pairs(goal, meshes, policies, ways), layers, policies)
    return Grid(meshes, policies, ways, columns, refused, layers)


def _crossed(batches: Ints, allowed: NDArray[np.bool_], layers: int, policies: tuple[Policy, ...]) -> Ints:
    """Every mesh and batch with every policy and way that it may have. `allowed`: by mesh, policy and way."""
    rows, policy, way = np.nonzero(allowed[batches[:, 0]])
    chosen = batches[rows]
    found: Ints = np.stack([chosen[:, 0], chosen[:, 1], chosen[:, 2], policy, way])
    return found


def _pairs(
    goal: Goal, meshes: tuple[Mesh, ...], policies: tuple[Policy, ...], ways: tuple[Way, ...]
) -> NDArray[np.bool_]:
    """Which policy and way each mesh may have."""
    made = np.zeros((len(meshes), len(policies), len(ways)), dtype=np.bool_)
    for at, mesh in enumerate(meshes):
        ranks = goal.devices // (mesh.tp * mesh.pp)
        for number, way in enumerate(ways):
            made[at, :, number] = _may(goal, mesh, way, ranks)
    return made


def _may(goal: Goal, mesh: Mesh, way: Way, ranks: int) -> bool:
    """Whether a strategy may stand beside a mesh with so many ranks that it could shard over."""
    if mesh.pp > 1 and way.strategy not in goal.space.pipelined:
        return False
    spread = SPREADS[way.strategy]
    alone = goal.devices // mesh.inner == 1
    if way.shard:
        return ranks > way.shard and ranks % way.shard == 0 and (goal.devices // mesh.inner) % way.shard == 0
    return goal.megatron or not alone or spread.weights or way.strategy == "none"


def _ways(goal: Goal) -> Iterator[Way]:
    """Strategies, and over how many ranks they shard: all, or those of a node where the others hold copies."""
    domain = goal.speeds.domain
    for name in goal.space.strategies:
        if name == "hsdp":
            if goal.devices > domain:
                yield Way(name, domain)
        elif goal.devices > 1 or goal.megatron:
            yield Way(name, 0)
    if goal.devices == 1 and not goal.megatron:
        yield Way("none", 0)


def _batches(goal: Goal, base: Plan, placed: tuple[int, Mesh]) -> Iterator[tuple[int, int, int]]:
    """Micro-batches of a mesh that make up the global batch, and that its schedule can run."""
    at, mesh = placed
    dp = goal.devices // mesh.inner
    for size in goal.space.micro_batches:
        count, rest = divmod(goal.global_batch, dp * size)
        if rest or not count:
            continue
        if mesh.pp > 1:
            plan = copied(base, {"pp": mesh.pp, "vpp": mesh.vpp}, {"micro_batch": size, "accumulation": count})
            if any(schedule_problems(pipeline_of(plan))):
                continue
        yield at, size, count


def meshes_of(goal: Goal, base: Plan, model: Model) -> tuple[tuple[Mesh, ...], int]:
    """Every mesh that the plan's own checks accept, and how many they refused."""
    found, refused = [], 0
    padded: dict[int, Plan | None] = {}
    for tp, cp, pp, vpp, ep, etp in _degrees(goal):
        if tp not in padded:
            padded[tp] = _over(goal, tp)
        start = padded[tp]
        mesh = None if start is None else _mesh(goal, start, (tp, cp, pp, vpp, ep, etp))
        if mesh is None:
            refused += 1
        else:
            found.append(mesh)
    return tuple(found), refused


def _over(goal: Goal, tp: int) -> Plan | None:
    """The plan of so many tensor-parallel ranks, whose vocabulary may be padded for them."""
    alone = replace(goal, devices=tp, global_batch=1)
    strategy = goal.space.strategies[0] if goal.megatron or tp > 1 else "none"
    try:
        return plan_of(alone, Candidate(strategy, 0, tp, 1, 1, 1, 1, tp, 1, NONE))
    except InputError:
        return None


def _mesh(goal: Goal, plan: Plan, given: tuple[int, ...]) -> Mesh | None:
    made = dict(zip(DEGREES, given, strict=True))
    tp, pp, vpp = made["tp"], made["pp"], made["vpp"]
    dp = goal.devices // (tp * made["cp"] * pp)
    options = dict(plan.parallel.options)
    layout = _layout(goal, pp * vpp)
    if layout is None:
        return None
    if layout:
        options[LAYOUT] = layout
    way: dict[str, object] = {
        **made, "world": goal.devices, "dp": dp, "sp": tp > 1, "options": options, "shard": None,
        "strategy": _first(goal, pp, dp), "etp": made["etp"] if goal.megatron and made["ep"] > 1 else None,
        "schedule": None if pp == 1 else "interleaved" if vpp > 1 else "1f1b",
        "reshard_after_forward": plan.parallel.reshard_after_forward if pp == 1 else False,
    }  # fmt: skip
    rounds = TRAFFIC.passed * pp * vpp
    wanted = copied(plan, way, {"accumulation": rounds, "sequence": goal.sequence})
    try:
        check(wanted)
        if not goal.megatron:
            check_model(wanted, model_of(wanted))
    except InputError:
        return None
    return Mesh(**made, layout=layout, groups=len(groups_of(wanted)))


def _first(goal: Goal, pp: int, dp: int) -> str:
    """A strategy that may stand beside this pipeline."""
    if pp > 1:
        return goal.space.pipelined[0]
    return goal.space.strategies[0] if goal.megatron or dp > 1 else "none"


def _layout(goal: Goal, stages: int) -> str | None:
    """The stages' text where Megatron-Core's even split cannot be; None where no split can."""
    sizes = goal.sizes
    layers = sizes.layers or 0
    if stages == 1 or not goal.megatron or (layers % stages == 0 and not sizes.mtp):
        return ""
    return balanced(layers, sizes.mtp, stages)


def _degrees(goal: Goal) -> Iterator[tuple[int, ...]]:
    """Degrees that the devices allow; the plan's own checks see to the rest."""
    axes, sizes, world = goal.space.degrees, goal.sizes, goal.devices
    tps = _divisors(world, AXES.model) if "tp" in axes else (1,)
    cps = _divisors(world, AXES.context) if "cp" in axes else (1,)
    pps = _divisors(world, sizes.layers or 1) if "pp" in axes else (1,)
    for tp, cp, pp in product(tps, cps, pps):
        if world % (tp * cp * pp):
            continue
        chunks = _chunks(sizes.layers or 1, pp) if pp > 1 and "vpp" in axes else (1,)
        eps = _divisors(world // pp, sizes.experts or 1) if "ep" in axes else (1,)
        for vpp, ep in product(chunks, eps):
            for etp in dict.fromkeys((1, tp)) if ep > 1 and "etp" in axes else (tp,):
                yield tp, cp, pp, vpp, ep, etp


def _chunks(layers: int, pp: int) -> tuple[int, ...]:
    """Model chunks of a rank: powers of two, and parts of its layers where these are even."""
    each, rest = divmod(layers, pp)
    most = min(AXES.chunks, each)
    even = _divisors(each, most) if not rest else ()
    powers = (1 << at for at in range(most.bit_length()))
    return tuple(sorted({one for one in (*even, *powers) if one <= most}))


def _divisors(of: int, most: int) -> Iterable[int]:
    return tuple(one for one in range(1, min(of, most) + 1) if of % one == 0)

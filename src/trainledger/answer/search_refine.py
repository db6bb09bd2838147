"""A candidate's pipeline solved for anew: layers of each stage and what runs again, from the stages' own ledgers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainledger.answer.bands import NOTHING, Band, Outside, replayed_over
from trainledger.answer.estimate import architecture_of
from trainledger.answer.roofline import PARTS, Roofline
from trainledger.answer.search_bounds import Lows
from trainledger.answer.search_exact import Exact, confirmed
from trainledger.answer.search_goal import Candidate, Goal, plan_of
from trainledger.answer.search_kept import Kept, Left
from trainledger.answer.search_layout import written
from trainledger.answer.search_shape import Shape, shape_of
from trainledger.answer.search_space import Floats, Grid, Mesh, Way, base_plan
from trainledger.answer.search_split import Choice, Problem, Solution, solve
from trainledger.answer.search_stages import split_at
from trainledger.base.units import GIB
from trainledger.facts.search_space import BLOCKS, MEGATRON_FULL, NONE, REACH, Policy
from trainledger.ledger.rank import rank_ledger
from trainledger.model.build import model_of
from trainledger.plan.degrees import accumulation
from trainledger.plan.mesh import mesh_of, ranks_of
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A candidate with what its costs are counted from: `grid` has it once for each policy."""

    goal: Goal
    one: Candidate
    plan: Plan
    base: Plan
    shape: Shape
    grid: Grid

    @classmethod
    def of(cls, goal: Goal, one: Candidate) -> Pipeline:
        """The pipeline of a candidate."""
        base, plan = base_plan(goal), plan_of(goal, one)
        shape = shape_of(model_of(base), base.keys())
        mesh = Mesh(one.tp, one.cp, one.pp, one.vpp, one.ep, one.etp, one.layout, 1)
        policies = _policies(goal)
        rows = [(0, one.micro_batch, accumulation(plan), at, 0) for at in range(len(policies))]
        columns = np.array(rows, dtype=np.int64).T
        return cls(
            goal,
            one,
            plan,
            base,
            shape,
            Grid((mesh,), policies, (Way(one.strategy, one.shard),), columns, 0, shape.layers),
        )

    def row(self, policy: Policy) -> int:
        """The row of a policy."""
        return next(at for at, one in enumerate(self.grid.policies) if one.name == policy.name)


def _policies(goal: Goal) -> tuple[Policy, ...]:
    names = {one.name for one in goal.policies}
    return (*goal.policies, *(one for one in (NONE, MEGATRON_FULL) if one.name not in names))


def refined(goal: Goal, one: Candidate) -> tuple[Candidate, Exact] | None:
    """The candidate with the stages that a solver chose, and its estimate: None where no split is faster and fits.

    Where a solution's own estimate does not fit, the stages' bytes are tightened by what was missing and solved again.
    Raises ImportError without highspy.
    """
    if one.pp == 1 or one.vpp > 1 or not goal.megatron:
        return None
    given = Pipeline.of(goal, one)
    problem = problem_of(given)
    for _ in range(REACH.rounds):
        found = solve(problem)
        if found is None:
            return None
        chosen = chosen_of(given, found)
        exact = confirmed((goal, chosen))
        if exact.fits:
            return None if same(given, chosen) else (chosen, exact)
        missing = max(exact.device.high - goal.device.usable_bytes, 0) / GIB
        problem = replace(problem, limit=problem.limit - max(missing, problem.limit * (1 - REACH.slack)))
    return None


def same(given: Pipeline, chosen: Candidate) -> bool:
    """Whether a solution is the candidate that it began with."""
    one = given.one
    begun = split_at(given.base, given.shape, (one.pp, 1, one.layout))
    ended = split_at(given.base, given.shape, (one.pp, 1, chosen.layout))
    return begun == ended and (one.policy.name, one.layers) == (chosen.policy.name, chosen.layers)


def chosen_of(given: Pipeline, found: Solution) -> Candidate:
    """The candidate of a solution."""
    policy = given.grid.policies[found.choice]
    if policy.name == BLOCKS.name and not found.first:
        policy = NONE
    layers = found.first if policy.name == BLOCKS.name else 0
    share = min(layers / max(found.layers), 1.0) if layers else policy.block
    layout = written(found.layers, given.shape.further)
    return replace(given.one, layout=layout, policy=replace(policy, block=share), layers=layers)


def problem_of(given: Pipeline) -> Problem:
    """The program of a pipeline. Bytes are in GiB: the stages' own ledgers as they are, plus or minus whole layers."""
    goal, one, shape = given.goal, given.one, given.shape
    lows = Lows(goal, given.base, shape, given.grid)
    count = int(given.grid.column("accumulation")[0])
    flight = tuple(sum(lows.flight.flying(one.pp, 1, count, rank)) for rank in range(one.pp))
    left = Kept(goal, given.base, shape, given.grid).left()
    states = tuple(float(each[0]) / GIB for each in lows.states(left))
    kinds = [at for at, kind in enumerate(shape.kinds) if not kind.further]
    line = Roofline(goal, given.base, shape, given.grid, left.away)
    choices = tuple(_choice(given, policy, (left, line), kinds) for policy in given.grid.policies)
    now = choices[given.row(one.policy)]
    split = split_at(given.base, shape, (one.pp, 1, one.layout))
    fixed = []
    for rank in range(one.pp):
        held, first = split.whole(rank), one.layers
        size = _peak(given, rank) / GIB
        for kind in kinds:
            over = min(first, held[kind]) if now.again else 0
            first -= over
            each = states[kind] + flight[rank] * now.kept[kind]
            size -= held[kind] * each - (over * flight[rank] * (now.kept[kind] - now.again[kind]) if over else 0.0)
        fixed.append(size)
    layers = tuple(len(shape.kinds[kind].layers) for kind in kinds)
    return Problem(layers, states, flight, tuple(fixed), _ends(given), _limit(given), choices)


def _peak(given: Pipeline, rank: int) -> float:
    """Live bytes at the peak of a stage, by its ledger."""
    plan = given.plan
    first = ranks_of(mesh_of(plan), pp=rank)[0].first
    ledger = rank_ledger(plan, model_of(plan), architecture_of(given.goal.device), first)
    return float(max(moment.allocated for moment in ledger.moments))


def _limit(given: Pipeline) -> float:
    """GiB of live tensors above which a plan cannot be said to fit."""
    high = Outside.of(architecture_of(given.goal.device), given.plan, NOTHING).above(Band(0, 0, 0)).high
    return float((given.goal.device.usable_bytes - high) / replayed_over(given.plan).reserved.high / GIB)


def _ends(given: Pipeline) -> tuple[float, ...]:
    """Seconds of the output layer, and of layers for further tokens, on the last stage."""
    line = Roofline(given.goal, given.base, given.shape, given.grid)
    last = float(line.head()[0]) * (1 + given.shape.further)
    for at, kind in enumerate(given.shape.kinds):
        if kind.further:
            last += len(kind.layers) * float(_seconds(line, at)[0])
    return (*(0.0 for _ in range(given.one.pp - 1)), last)


def _seconds(line: Roofline, kind: int) -> Floats:
    found: Floats = np.sum([getattr(line.layers[kind], name) for name in PARTS], axis=0)
    return found


def _choice(given: Pipeline, policy: Policy, costs: tuple[Left, Roofline], kinds: list[int]) -> Choice:
    """Costs of a policy by kind of layer."""
    left, line = costs
    micro, row = given.one.micro_batch, given.row(policy)
    plain, again = ([float(some[row, kind]) * micro / GIB for kind in kinds] for some in (left.plain, left.again))
    timed = {
        one.name: tuple(float(_seconds(line, kind)[given.row(one)]) for kind in kinds)
        for one in (policy, NONE, MEGATRON_FULL)
    }
    if policy.name == BLOCKS.name:
        return Choice(policy.name, tuple(plain), timed[NONE.name], tuple(again), timed[MEGATRON_FULL.name])
    whole = policy.again == ("",)
    return Choice(policy.name, tuple(again if whole else plain), timed[policy.name])

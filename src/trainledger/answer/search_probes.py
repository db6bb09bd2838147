"""What a step holds besides model states where no pipeline runs, from the ledger itself at four small sizes.

The bytes of one moment are a constant, a part for each layer, one for each sequence of a micro-batch, and one for each
pair of them. Two numbers of layers and two of sequences give all four; the moment's bytes at any size are a lower bound
of the peak, whichever moment that is at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainledger.answer.search_goal import Candidate, Goal, plan_of
from trainledger.answer.search_space import Floats, Grid, Way
from trainledger.base.problems import InputError
from trainledger.base.sources import Basis
from trainledger.facts.search_space import Policy
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.lines.line import Account
from trainledger.lines.moments import INIT
from trainledger.model.build import model_of
from trainledger.model.program import Model

STATES = (Account.WEIGHTS, Account.GRADIENTS, Account.MASTER, Account.OPTIMIZER)
Found = dict[str, float]


@dataclass(frozen=True, slots=True)
class Parts:
    """Bytes besides states at one moment: `fixed`, for each layer, for each sequence, and for each of both."""

    fixed: float
    layer: float
    sequence: float
    both: float


NOTHING = Parts(0.0, 0.0, 0.0, 0.0)


class Probes:
    """The parts of every candidate of a grid, arrays."""

    def __init__(self, goal: Goal, model: Model, grid: Grid) -> None:
        self.goal, self.model, self.grid = goal, model, grid

    def parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Fixed bytes, those of a layer, of a sequence and of both."""
        names = ("tp", "cp", "policy", "way")
        columns = np.stack([self.grid.column(name) for name in names])
        keys, at = np.unique(columns, axis=1, return_inverse=True)
        made = [self._parts(*map(int, key)) for key in keys.T]
        fixed, layer, sequence, both = (
            np.array([getattr(one, name) for one in made])[at] for name in ("fixed", "layer", "sequence", "both")
        )
        return fixed, layer, sequence, both

    def _parts(self, tp: int, cp: int, policy: int, way: int) -> Parts:
        if len(self.model.blocks) != 1:
            return NOTHING
        few, more = layers_of(self.model.blocks[0].count)
        chosen, given = self.grid.policies[policy], self.grid.ways[way]
        try:
            found = [
                [self._held((tp, cp), chosen, given, (layers, micro)) for micro in (1, 1 + 1)] for layers in (few, more)
            ]
        except InputError:
            return NOTHING
        return parts_of(found, few, more)

    def _held(self, axes: tuple[int, int], policy: Policy, way: Way, size: tuple[int, int]) -> Found:
        """Bytes besides states, but no assumed ones, at every moment of a model of so many layers and sequences."""
        layers, micro = size
        tp, cp = axes
        one = Candidate(way.strategy, way.shard, tp, cp, 1, 1, 1, tp, micro, policy)
        plan = plan_of(replace(self.goal, global_batch=self.goal.devices // one.inner * micro), one)
        model = model_of(plan)
        fewer = replace(model, blocks=(replace(model.blocks[0], layers=model.blocks[0].layers[:layers]),))
        return _besides(rank_ledger(plan, fewer, self.goal.device.architecture))


def layers_of(count: int) -> tuple[int, int]:
    """Few layers and a few more; policies by every second layer have as many of each kind in what is added."""
    two = 1 + 1
    more = min(two + two, count)
    return max(more - two, 1), more


def _besides(ledger: Ledger) -> Found:
    lines = enumerate(ledger.lines)
    left_out = {at for at, line in lines if line.account in STATES or line.basis is Basis.ASSUMED}
    return {
        moment.name: float(sum(ledger.lines[at].unit * copies for at, copies in moment.live if at not in left_out))
        for moment in ledger.moments
        if moment.name != INIT
    }


def parts_of(found: list[list[Found]], few: int, more: int) -> Parts:
    """The parts of the moment that is largest at the largest size, of those that all sizes have. `found`: for `few` and
    `more` layers, of one sequence and of two."""
    names = set.intersection(*(set(one) for some in found for one in some))
    if not names or more == few:
        return NOTHING
    name = max(sorted(names), key=lambda one: found[-1][-1][one])
    (low_one, low_two), (high_one, high_two) = ([one[name] for one in some] for some in found)
    both = ((high_two - high_one) - (low_two - low_one)) / (more - few)
    layer = (high_one - low_one) / (more - few) - both
    sequence = low_two - low_one - both * few
    return Parts(low_one - layer * few - sequence - both * few, layer, sequence, both)

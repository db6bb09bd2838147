"""The layout of ColossalAI's MixedPrecisionOptimizer: this rank's weights, and fp32 copies that HybridAdam updates.

A step turns every gradient into an fp32 one, which goes only when the trainer sets gradients to none, after the step.
Source: the row in facts/colossal.py: MixedPrecisionOptimizer.__init__, step, zero_grad, _compute_grad_norm.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from trainledger.facts.colossal import HYBRID
from trainledger.facts.dtypes import FP64, DType
from trainledger.facts.optimizer_bytes import StateOptions
from trainledger.ledger.layout import Copies, Layout, Schedule, Stored
from trainledger.ledger.opening import Job
from trainledger.ledger.updates import Parameter, Runs, births, deaths, state_lines
from trainledger.lines.line import Account
from trainledger.lines.moments import CLIP, OPTIMIZER
from trainledger.model.program import Weight

if TYPE_CHECKING:
    from trainledger.ledger.step import Updates

ENDING = "zero_grad"


class MixedPrecision(Layout):
    """zero_stage 0: nothing is spread over data-parallel ranks."""

    def __init__(self, job: Job, schedule: Schedule, dtypes: Stored, updates: Updates) -> None:
        self.updates = updates
        super().__init__(job, schedule, dtypes)

    @property
    def own(self) -> MixedPrecision:
        """It builds its states and steps by itself."""
        return self

    def build(self) -> Runs:
        """The model, cast and cut on the host, then the copies."""
        masters = [(self._line(Account.MASTER, "", one, one.dtype), one.count) for one in self.parameters]
        return [*births(self.weights()), *births(masters)]

    def step(self, first: bool) -> list[tuple[str, Runs]]:
        """Gradients in fp32 in place of autograd's, a norm of each in fp64, states, then no gradients."""
        name = "fp32 gradient of "
        wide = [(self._line(Account.GRADIENTS, name, one, one.dtype), one.count) for one in self.parameters]
        raised = _paired(wide, self.gradients())
        doubled = self._norms() if self.updates.clips else []
        made = state_lines(self.job.book, self.updates.row, self.parameters, self._options) if first else []
        states: Runs = births(made) or [((), 1)]
        return [(CLIP, [*raised, *doubled]), (OPTIMIZER, states), (ENDING, deaths(wide))]

    def _norms(self) -> Runs:
        runs: Runs = []
        for count, group in groupby(self.parameters, key=attrgetter("count")):
            made = [self._line(Account.CLIP, "in fp64 for its norm: gradient of ", one, FP64) for one in group]
            runs.append((tuple(event for line in made for event in (line + 1, -line - 1)), count))
        return runs

    def _options(self, weight: Weight) -> StateOptions:
        """HybridAdam keeps fp32 states of the copies for any plan's implementation."""
        return replace(self.updates.options(weight), implementation="apex-fused")

    def _line(self, account: Account, name: str, one: Parameter, dtype: DType) -> int:
        return self.job.book.tensor(account, name + one.name, one.weight.dims, dtype, HYBRID.source)


def _paired(coming: Copies, going: Copies) -> Runs:
    """One tensor comes, then the one that it was made from goes; layer by layer."""
    runs: Runs = []
    for count, group in groupby(zip(coming, going, strict=True), key=lambda pair: pair[0][1]):
        runs.append((tuple(event for (made, _), (gone, _) in group for event in (made + 1, -gone - 1)), count))
    return runs

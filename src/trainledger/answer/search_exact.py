"""The exact estimate of one candidate: the ledger first, and the allocator's replay where the plan may fit."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.answer.bands import Band, Outside, peaks_of, replayed_over, scaled, without
from trainledger.answer.check import check, check_model
from trainledger.answer.estimate import architecture_of, device_of, estimate
from trainledger.answer.search_goal import Candidate, Goal, plan_of
from trainledger.answer.verdict import Outcome, judge
from trainledger.base.problems import InputError
from trainledger.facts.megatron import FRAMEWORKS
from trainledger.ledger.rank import rank_ledger
from trainledger.model.build import model_of
from trainledger.model.program import Model
from trainledger.plan.mesh import mesh_of, ranks_of
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Exact:
    """What the estimate says of a candidate: the verdict, live bytes at the peak, the device's bytes, the peak's
    moment; whether the allocator was replayed; `refused`: why there is no estimate."""

    outcome: Outcome | None
    allocated: int
    device: Band
    moment: str
    replayed: bool
    refused: str = ""

    @property
    def fits(self) -> bool:
        """Whether the verdict is `fits`."""
        return self.outcome == "fits"


Job = tuple[Goal, Candidate]


def exact_of(job: Job) -> Exact:
    """The estimate of a candidate by its ledger, with a replay only where that decides (see `exact`). Never raises for
    a plan that is refused."""
    return _guarded(job, False)


def confirmed(job: Job) -> Exact:
    """The whole estimate of a candidate, as `trainledger estimate` makes it."""
    return _guarded(job, True)


def _guarded(job: Job, whole: bool) -> Exact:
    goal, one = job
    try:
        plan = plan_of(goal, one)
        return replayed(plan) if whole else exact(plan, goal.device.usable_bytes)
    except InputError as error:
        return Exact(None, 0, Band(0, 0, 0), "", False, str(error.problems[0]))


def exact(plan: Plan, usable: int) -> Exact:
    """The estimate of a plan on a device of so many bytes. Raises InputError where it cannot be estimated.

    Where the ledger's live bytes leave no room for `fits`, nothing is replayed: the outcome is `tight` or
    `does-not-fit`, by the low end. Where even the sourced ratio's high end fits, nothing is replayed either.
    """
    check(plan)
    model = model_of(plan)
    check_model(plan, model)
    architecture = architecture_of(device_of(plan))
    over = replayed_over(plan)
    for rank in (*_likely(plan, model), None):  # one stage may say enough
        ledger = rank_ledger(plan, model, architecture, rank)
        outside = Outside.of(architecture, plan, ledger)
        live = max(moment.allocated for moment in ledger.moments)
        peak = peaks_of(plan, ledger, None)[0]
        shown = outside.above(peak.reserved)
        if outside.above(scaled(live, over.reserved)).high > usable:
            sure = without(scaled(live, over.allocated), peak.spared)
            least = min(outside.above(sure).low, shown.expected)
            found = judge(usable, least, shown.expected, max(shown.high, usable + 1)).outcome
            return Exact(found, live, shown, peak.moment, False)
    if shown.high <= usable:
        return Exact(judge(usable, shown.low, shown.expected, shown.high).outcome, live, shown, peak.moment, False)
    return replayed(plan)


def _likely(plan: Plan, model: Model) -> tuple[int, ...]:
    """A rank of the stage that is likely the fullest: the first, whose micro-batches wait longest, or the next where
    the first layers are of another kind."""
    if plan.parallel.pp == 1 or plan.stack.framework not in FRAMEWORKS:
        return ()
    return (ranks_of(mesh_of(plan), pp=int(len(model.blocks) > 1))[0].first,)


def replayed(plan: Plan) -> Exact:
    """The whole estimate of a plan. Raises InputError where it cannot be estimated."""
    found = estimate(plan)
    peak = found.peak
    return Exact(found.verdict.outcome, peak.allocated.expected, found.device, peak.moment, peak.replayed)

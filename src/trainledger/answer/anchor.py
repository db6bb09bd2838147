"""What small measured runs held beyond their estimates, and how that is carried to other batches and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainledger.answer.bands import Band
from trainledger.answer.changed import Change, Data, planned
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.problems import InputError, Problem
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan

METRICS = ("device", "reserved", "allocated")  # the nearest to a device's limit first


class Rule(StrEnum):
    """What the unexplained bytes are in proportion to."""

    CONSTANT = "constant"
    TOKEN = "per token"
    LAYER = "per layer"


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run that was measured: its plan (keys as given, with what differs), and bytes by amount: allocated, reserved,
    device. `steps`: peaks over whole steps only, as run records hold them, not over the load as well."""

    name: str
    data: Data
    changes: tuple[Change, ...]
    sizes: tuple[tuple[str, int], ...]
    steps: bool = False


@dataclass(frozen=True, slots=True)
class Residual:
    """One run's difference, measured less expected, in bytes; its tokens of a micro-batch and layers; what its
    rule says it should be (`fitted`)."""

    run: str
    measured: int
    expected: int
    unexplained: int
    tokens: int
    layers: int
    fitted: int


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The difference as a line of its own: `rates` in bytes per unit of each rule that is left; one where two or more
    runs decided. `error`: the most by which the rule misses a run, in bytes."""

    metric: str
    rates: tuple[tuple[Rule, float], ...]
    error: int
    residuals: tuple[Residual, ...]

    def at(self, plan: Plan) -> Band:
        """The unexplained bytes of a plan. Where no rule was decided, the most that any says counts, and the interval
        reaches down to the least."""
        tokens, layers = _units(plan)
        found = [round(rate * _unit(rule, tokens, layers)) for rule, rate in self.rates]
        return Band(min(found) - self.error, max(found), max(found) + self.error)


def unexplained(runs: Sequence[MeasuredRun]) -> Unexplained:
    """What the runs held beyond their estimates, by the nearest amount to a device's limit that all of them state.

    Each run's rule through the origin is fitted by least squares; the rule that misses the runs by least is taken where
    the runs tell them apart. Raises InputError when the runs share no amount, and for a plan that is none.
    """
    given = [dict(run.sizes) for run in runs]
    metric = next((name for name in METRICS if all(name in sizes for sizes in given)), "")
    if not metric:
        found = "; ".join(", ".join(sizes) or "nothing" for sizes in given)
        allowed = f"every run has to state one of {', '.join(METRICS)}"
        raise InputError([Problem("--measured", f"found {found}", allowed)])
    rows = []
    for run, sizes in zip(runs, given, strict=True):
        answer = estimate(planned(run.data, run.changes))
        expected = _expected(answer, metric, run.steps)
        rows.append((run.name, sizes[metric], expected, *_units(answer.plan)))
    fits = {rule: _fit(rule, rows) for rule in Rule}
    least = min(error for _, error in fits.values())
    left = [rule for rule in Rule if fits[rule][1] == least]
    rates = tuple((rule, fits[rule][0]) for rule in left)
    residuals = tuple(
        Residual(name, size, mine, size - mine, tokens, layers, round(rates[0][1] * _unit(left[0], tokens, layers)))
        for name, size, mine, tokens, layers in rows
    )
    return Unexplained(metric, rates, round(least), residuals)


Rows = Sequence[tuple[str, int, int, int, int]]


def _fit(rule: Rule, rows: Rows) -> tuple[float, int]:
    """Bytes per unit by least squares through the origin, and the most by which that misses a run."""
    pairs = [(_unit(rule, tokens, layers), size - mine) for _, size, mine, tokens, layers in rows]
    rate = sum(unit * left for unit, left in pairs) / sum(unit * unit for unit, _ in pairs)
    return rate, max(abs(round(left - rate * unit)) for unit, left in pairs)


def _unit(rule: Rule, tokens: int, layers: int) -> int:
    return {Rule.CONSTANT: 1, Rule.TOKEN: tokens, Rule.LAYER: layers}[rule]


def _units(plan: Plan) -> tuple[int, int]:
    """Tokens of a micro-batch, and layers."""
    batch = plan.batch
    return batch.micro_batch * batch.sequence, sum(block.count for block in model_of(plan).blocks) or 1


def _expected(answer: Estimate, metric: str, steps: bool) -> int:
    peak = answer.steps if steps else answer.peak
    if metric == "device":
        return answer.device.expected
    return peak.reserved.expected if metric == "reserved" else peak.allocated.expected

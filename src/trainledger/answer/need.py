"""What a changed plan needs of its device, at a stated confidence: first by a bound that is cheap, then exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trainledger.answer.anchor import Unexplained
from trainledger.answer.bands import Band, largest
from trainledger.answer.budgets import asked as budgeted
from trainledger.answer.changed import Change, Data, planned
from trainledger.answer.disk import beside
from trainledger.answer.estimate import Drawn, Estimate, device_of, drawn, estimated
from trainledger.answer.verdict import Outcome
from trainledger.base.problems import InputError, Problem
from trainledger.facts.fit_knobs import CONFIDENCE
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Terms:
    """When a plan counts as fitting: `confidence` between that of the expected value and that of the interval's high
    end; `unexplained`: what measured runs held beyond their estimates."""

    confidence: float = CONFIDENCE.high
    unexplained: Unexplained | None = None

    @property
    def share(self) -> float:
        """How far from the expected value to the high end."""
        return (self.confidence - CONFIDENCE.expected) / (CONFIDENCE.high - CONFIDENCE.expected)

    def counted(self, need: Band) -> int:
        """The bytes of a band that count at this confidence."""
        return need.expected + round((need.high - need.expected) * self.share)


@dataclass(frozen=True, slots=True)
class Trial:
    """One changed plan. `need`: bytes of its device, the unexplained ones (`beside`) included; `at`: of these what is
    compared with `usable`; `moment`: the peak's. `exact`: estimated whole, else a bound that shows it cannot fit.
    `problem`: why it is no plan at all, or one that cannot be estimated. `elsewhere`: the place besides the device (the
    host's memory, the disk, ...) that it does not fit at the same confidence, with the reason."""

    value: int | str
    changes: tuple[Change, ...]
    need: Band
    beside: int
    at: int
    usable: int
    moment: str
    outcome: Outcome | None
    exact: bool = True
    problem: str = ""
    elsewhere: str = ""

    @property
    def fits(self) -> bool:
        """Whether it fits at the confidence asked for. A bound alone never says so."""
        return self.exact and not self.problem and not self.elsewhere and self.at <= self.usable

    @property
    def open(self) -> bool:
        """Whether a bound leaves it open whether it fits."""
        return not self.problem and self.at <= self.usable

    @property
    def margin(self) -> int:
        """Bytes left of the device at the confidence asked for; below zero where it does not fit."""
        return self.usable - self.at


@dataclass(frozen=True, slots=True)
class Question:
    """The plan's keys as given, and when a change of them fits. `last`: the changed plan that was bounded last, whose
    ledger its estimate needs again."""

    data: Data
    terms: Terms
    last: list[tuple[tuple[Change, ...], Drawn]] = field(default_factory=list, compare=False)

    def bound(self, value: int | str, changes: Sequence[Change]) -> Trial:
        """The least that a changed plan can need: its live tensors, with nothing lost between them.

        The replay's reserved bytes are never less, so what does not fit here does not fit; costs milliseconds.
        """
        try:
            of = drawn(planned(self.data, changes))
        except InputError as error:
            return _refused(value, changes, error)
        self.last[:] = [(tuple(changes), of)]
        moment = largest(of.ledger.moments).name
        found = Trial(value, tuple(changes), of.least, 0, 0, _usable(of.plan), moment, None, False)
        return self._at(found, of.plan)

    def exact(self, value: int | str, changes: Sequence[Change]) -> Trial:
        """The whole estimate of a changed plan."""
        try:
            of = next((one for made, one in self.last if made == tuple(changes)), None)
            answer = estimated(of or drawn(planned(self.data, changes)))
        except InputError as error:
            return _refused(value, changes, error)
        need = answer.verdict.need or (answer.device.low, answer.device.expected, answer.device.high)
        verdict, moment = answer.verdict, answer.peak.moment
        found = Trial(value, tuple(changes), Band(*need), 0, 0, _usable(answer.plan), moment, verdict.outcome)
        return self._at(replace(found, elsewhere=self._elsewhere(answer)), answer.plan)

    def _elsewhere(self, answer: Estimate) -> str:
        """The first place besides the device that the plan says something of and does not fit, with the reason."""
        for one in beside(answer).budgets if budgeted(answer.plan) else ():
            margin = one.verdict.margin
            if margin is not None and margin < self.terms.counted(one.need) - one.need.expected:
                return f"{one.name}, {one.moment}: {one.verdict.reasons[0]}"
        return ""

    def _at(self, trial: Trial, plan: Plan) -> Trial:
        """The trial with what is unexplained, and with the bytes that count at the confidence asked for."""
        need, more_than = trial.need, 0
        if self.terms.unexplained is not None:
            more = self.terms.unexplained.at(plan)
            more_than = more.expected
            need = Band(need.low + more.low, need.expected + more.expected, need.high + more.high)
        return replace(trial, need=need, beside=more_than, at=self.terms.counted(need))


def asked(data: Data, confidence: float, unexplained: Unexplained | None = None) -> Question:
    """The question of a plan. Raises InputError for a confidence out of the interval, and for a plan without device."""
    least, most = CONFIDENCE.expected, CONFIDENCE.high
    if not least <= confidence <= most:
        allowed = f"from {least:g} (the expected value) to {most:g} (the interval's high end)"
        raise InputError([Problem("--confidence", f"found {confidence:g}", allowed)])
    if device_of(planned(data)) is None:
        fix = "Add --set device=h100-80gb."
        raise InputError([Problem("device", "the plan names none", "limits are those of a device", fix)])
    return Question(data, Terms(confidence, unexplained))


def _usable(plan: Plan) -> int:
    device = device_of(plan)
    return device.usable_bytes if device else 0


def _refused(value: int | str, changes: Sequence[Change], error: InputError) -> Trial:
    first = error.problems[0]
    said = f"{first.path}: {first.found}; {first.allowed}" if first.path else f"{first.found}; {first.allowed}"
    return Trial(value, tuple(changes), Band(0, 0, 0), 0, 0, 0, "", None, False, said)

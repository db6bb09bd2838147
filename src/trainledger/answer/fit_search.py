"""The largest whole number that fits, by bisection over real estimates: a cheap bound first, exact near the border."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainledger.answer.need import Trial
from trainledger.facts.fit_knobs import LADDERS

Try = Callable[[int], Trial]  # a value -> what it needs


@dataclass(frozen=True, slots=True)
class Span:
    """Values from `low` to `high`, `step` apart; `start`: where to look first."""

    low: int
    high: int
    step: int
    start: int

    @property
    def last(self) -> int:
        """The number of the last value, from 0."""
        return (self.high - self.low) // self.step

    def value(self, number: int) -> int:
        """The value of a number."""
        return self.low + number * self.step

    def number(self, value: int) -> int:
        """The number of the nearest value at or below."""
        return min(max((value - self.low) // self.step, 0), self.last)


@dataclass(frozen=True, slots=True)
class Found:
    """`best`: the last that fits (None: none does); `next`: one step more (fewer, where the smallest was looked for),
    which does not, or None at the end of what is tried; `beyond`: further ones that fit all the same, as blocks may
    fall better there; `below`: the last but one, where that does not fit."""

    best: Trial | None
    next: Trial | None
    beyond: tuple[Trial, ...] = ()
    below: Trial | None = None


class Counted:
    """Trials by value, each made once; `report` is told of every whole estimate."""

    def __init__(self, bound: Try, exact: Try, report: Callable[[], None]) -> None:
        self._bound, self._exact, self._report = bound, exact, report
        self._cheap: dict[int, Trial] = {}
        self._whole: dict[int, Trial] = {}

    def bound(self, value: int) -> Trial:
        """The cheap bound of a value."""
        if value not in self._cheap:
            self._cheap[value] = self._bound(value)
        return self._cheap[value]

    def exact(self, value: int) -> Trial:
        """The whole estimate of a value."""
        if value not in self._whole:
            self._whole[value] = self._exact(value)
            self._report()
        return self._whole[value]

    def judged(self, value: int) -> Trial:
        """The bound where it refuses already, else the whole estimate."""
        cheap = self.bound(value)
        return self.exact(value) if cheap.open else cheap


def largest(span: Span, tries: Counted) -> Found:
    """The largest value that fits, such that one step more does not.

    What a plan needs grows almost evenly with a batch or a length, so the border is guessed by interpolation between
    the two ends, and halved now and then. How blocks fall is no monotone function: the neighbours are tried as well.
    """
    first = tries.judged(span.low)
    if not first.fits:
        return Found(None, first)
    refused = _refused(span, tries)
    low, high = (0, first), (refused, tries.bound(span.value(min(refused, span.last))))
    if refused > span.last:
        top = tries.exact(span.value(span.last))
        if top.fits:
            return Found(top, None)
        high = (span.last, top)
    halve, last = False, None
    while high[0] - low[0] > 1:
        at = _between(low, high, halve)
        trial = tries.judged(span.value(at))
        halve, last = trial.fits is last, trial.fits  # the same end twice: the line is no good guess here
        if trial.fits:
            low = (at, trial)
        else:
            high = (at, trial)
    more = [tries.judged(span.value(at)) for at in range(high[0] + 1, high[0] + 1 + LADDERS.beyond) if at <= span.last]
    under = tries.judged(span.value(low[0] - 1)) if low[0] else first
    return Found(low[1], high[1], tuple(one for one in more if one.fits), None if under.fits else under)


def _refused(span: Span, tries: Counted) -> int:
    """The number of the first value that the bound refuses; one past the last where it refuses none."""
    low, high = (0, tries.bound(span.low)), None
    at = max(span.number(span.start), 1)
    while high is None:
        at = min(at, span.last)
        trial = tries.bound(span.value(at))
        if not trial.open:
            high = (at, trial)
        elif at == span.last:
            return span.last + 1
        else:
            low, at = (at, trial), _further(low, (at, trial))
    turn = 0
    while high[0] - low[0] > 1:
        turn += 1
        at = _between(low, high, halve=turn % LADDERS.turns == 0)
        trial = tries.bound(span.value(at))
        if trial.open:
            low = (at, trial)
        else:
            high = (at, trial)
    return high[0]


def _further(before: tuple[int, Trial], low: tuple[int, Trial]) -> int:
    """A number past the border: one past where the line through two needs meets the usable bytes."""
    (first, less), (last, more) = before, low
    rise = more.at - less.at
    return last + 1 + (more.margin * (last - first) // rise if rise > 0 else last)


def _between(low: tuple[int, Trial], high: tuple[int, Trial], halve: bool) -> int:
    """A number between two: where the line through their needs meets the usable bytes, or the middle."""
    (first, fits), (last, not_so) = low, high
    rise = not_so.at - fits.at
    if halve or rise <= 0 or not_so.problem:
        return (first + last) >> 1
    return min(max(first + fits.margin * (last - first) // rise, first + 1), last - 1)


def first_that_fits(choices: Iterable[Callable[[], Trial]]) -> tuple[Found, tuple[Trial, ...]]:
    """The first of ordered choices that fits, with the last one before it that is a plan and does not; and those that
    are no plan."""
    before: Trial | None = None
    refused: list[Trial] = []
    for choice in choices:
        trial = choice()
        if trial.fits:
            return Found(trial, before), tuple(refused)
        if trial.problem:
            refused.append(trial)
        else:
            before = trial
    return Found(None, before), tuple(refused)

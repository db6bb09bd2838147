"""The limits of a plan: the largest micro-batch, sequence, rank or model, the smallest device or degree, that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainledger.answer.anchor import Unexplained
from trainledger.answer.changed import Change, Data, planned
from trainledger.answer.estimate import estimate
from trainledger.answer.fit_choices import Choice, choices, numbered, positions, span_of
from trainledger.answer.fit_search import Counted, Found, Span, first_that_fits, largest
from trainledger.answer.need import Question, Trial, asked
from trainledger.answer.unfrozen import trained_layers, unfrozen
from trainledger.answer.verdict import Outcome
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.fit_knobs import CONFIDENCE, KNOBS, LADDERS, Knob
from trainledger.plan.schema import Plan

Report = Callable[[int, int], None]  # whole estimates made, and about how many are expected
USUAL = (Knob.MICRO_BATCH, Knob.SEQUENCE)
Axes = tuple[Knob, Knob]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look for: knobs, a family of models (empty: the model's own type), and whether the frontier too."""

    knobs: tuple[Knob, ...] = USUAL
    family: str = ""
    frontier: bool = False

    @property
    def axes(self) -> Axes:
        """What the frontier looks for, and of what: the micro-batch of each sequence; where layers are looked for,
        these, of each sequence, or of each micro-batch where that is looked for and the sequence is not."""
        if Knob.LAYERS_UNFROZEN not in self.knobs:
            return Knob.MICRO_BATCH, Knob.SEQUENCE
        rows = Knob.MICRO_BATCH in self.knobs and Knob.SEQUENCE not in self.knobs
        return Knob.LAYERS_UNFROZEN, Knob.MICRO_BATCH if rows else Knob.SEQUENCE


@dataclass(frozen=True, slots=True)
class Limit:
    """One knob's answer. `own`: the plan's value; `step`: of whole numbers, else 0; `refused`: choices that are no plan
    or cannot be estimated, each with the reason; `notes`: what a reader should know of the value."""

    knob: Knob
    own: int | str
    step: int
    found: Found
    refused: tuple[Trial, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """The largest of what a frontier looks for, at one value of the other (`at`)."""

    at: int
    found: Found


@dataclass(frozen=True, slots=True)
class Fit:
    """The plan as it stands (`now`), each limit alone, and the frontier: what it looks for, and of what (`axes`)."""

    plan: Plan
    confidence: float
    now: Trial
    limits: tuple[Limit, ...]
    frontier: tuple[Point, ...]
    unexplained: Unexplained | None
    axes: Axes = USUAL

    @property
    def outcome(self) -> Outcome:
        """`fits` where every limit that was looked for has a value, else `does-not-fit`: what a gate goes by."""
        return "fits" if all(limit.found.best for limit in self.limits) else "does-not-fit"


def fit(
    data: Data,
    wanted: Wanted,
    confidence: float = CONFIDENCE.high,
    unexplained: Unexplained | None = None,
    report: Report | None = None,
) -> Fit:
    """Every limit asked for of a plan (keys as given), each with the other keys as they stand.

    Raises InputError for a plan that cannot be estimated or names no device, and for a knob that it does not have.
    """
    plan, question = planned(data), asked(data, confidence, unexplained)
    now = question.exact("", ())
    if now.problem:
        estimate(plan)  # says every problem, not the first alone
    tick = _ticker(report, len(wanted.knobs) + wanted.frontier * LADDERS.rows)
    limits = tuple(_limit(question, plan, knob, (wanted.family, tick)) for knob in wanted.knobs)
    frontier = tuple(_frontier(question, plan, wanted.axes, tick)) if wanted.frontier else ()
    if report is not None:
        report(1, 1)
    return Fit(plan, confidence, now, limits, frontier, unexplained, wanted.axes)


def knob_of(name: str) -> Knob:
    """The knob of that name. Raises InputError with the nearest."""
    known = [one.value for one in Knob]
    if name in known:
        return Knob(name)
    near = nearest(name, known)
    raise InputError(
        [Problem("--find", f"found {name!r}", f"one of {', '.join(known)}", f"Did you mean {near}?" if near else "")]
    )


def _ticker(report: Report | None, searches: int) -> Callable[[], None]:
    done = [0]

    def tick() -> None:
        done[0] += 1
        if report is not None:
            report(done[0], max(searches * (LADDERS.turns + LADDERS.beyond), done[0] + 1))

    return tick


def _limit(question: Question, plan: Plan, knob: Knob, how: tuple[str, Callable[[], None]]) -> Limit:
    family, tick = how
    if KNOBS[knob].step:
        span = span_of(plan, knob)
        found = largest(span, _tries(question, plan, knob, tick))
        own = int(str(_own(plan, knob)))
        return Limit(knob, own, span.step, found, (), tuple(_notes(plan, knob, found, span)))
    found, refused = first_that_fits(
        _chosen(question, choice, tick) for choice in choices(question.data, plan, knob, family)
    )
    return Limit(knob, _own(plan, knob), 0, found, refused, tuple(_notes(plan, knob, found, None)))


def _tries(
    question: Question, plan: Plan, knob: Knob, tick: Callable[[], None], base: Sequence[Change] = ()
) -> Counted:
    def bound(value: int) -> Trial:
        return question.bound(value, (*base, *numbered(plan, knob, value)))

    def exact(value: int) -> Trial:
        return question.exact(value, (*base, *numbered(plan, knob, value)))

    return Counted(bound, exact, tick)


def _chosen(question: Question, choice: Choice, tick: Callable[[], None]) -> Callable[[], Trial]:
    def trial() -> Trial:
        cheap = question.bound(choice.value, choice.changes)
        if not cheap.open:
            return cheap
        tick()
        return question.exact(choice.value, choice.changes)

    return trial


def _own(plan: Plan, knob: Knob) -> int | str:
    """The plan's own value of a knob."""
    if knob is Knob.MODEL:
        return str(plan.keys().get("name") or plan.keys().get("model_type"))
    if knob is Knob.DEVICE:
        return (plan.device.name if plan.device else None) or "device"
    if knob is Knob.LAYERS_UNFROZEN:
        return unfrozen(plan)
    section, _, name = KNOBS[knob].path.partition(".")
    return int(getattr(getattr(plan, section), name))


def _frontier(question: Question, plan: Plan, axes: Axes, tick: Callable[[], None]) -> Iterator[Point]:
    """The largest of the first axis at each value of the second that doubles, at the plan's own, and at the last."""
    sought, across = axes
    values, span = span_of(plan, sought), span_of(plan, across)
    least = numbered(plan, sought, values.low)
    longest = largest(span, _tries(question, plan, across, tick, least)).best
    if longest is None:
        return
    top, last = int(longest.value), 0
    for at in _ladder(across, span, int(_own(plan, across)), top):
        start = _start(sought, at, last) if last else values.start
        here = Span(values.low, values.high, values.step, max(start, values.low))
        base = numbered(plan, across, at)
        found = largest(here, _tries(question, plan, sought, tick, base))
        last = int(found.best.value) if found.best else values.low
        yield Point(at, found)


def _start(sought: Knob, at: int, last: int) -> int:
    """A guess from the value before, on a ladder that doubles: half as many sequences, as many layers."""
    return last >> 1 if sought is Knob.MICRO_BATCH and last > 1 and at > 1 else last


def _ladder(across: Knob, span: Span, own: int, top: int) -> tuple[int, ...]:
    least = span.value(span.number(max(LADDERS.sequences, span.low))) if across is Knob.SEQUENCE else span.low
    found = {top} | ({own} if own <= top else set())
    while least < top and len(found) < LADDERS.rows:
        found.add(least)
        least += least
    return tuple(sorted(found))


def _notes(plan: Plan, knob: Knob, found: Found, span: Span | None) -> Iterator[str]:
    best = found.best
    if found.beyond:
        values = ", ".join(f"{one.value:,}" if isinstance(one.value, int) else one.value for one in found.beyond)
        yield f"{values} would fit again: how blocks fall is no even function of it; what is named is the last in a row"
    if found.below is not None:
        yield f"{found.below.value:,} does not fit, though it is less: how blocks fall is no even function of it"
    if best is None:
        return
    if knob is Knob.SEQUENCE and positions(plan) and int(best.value) > positions(plan):
        yield f"the model's keys state {positions(plan):,} positions: longer sequences need a longer rotary table"
    if span is not None and found.next is None:
        yield f"{span.high:,} is the highest value there is to try; memory does not bound it"
    if knob is Knob.LAYERS_UNFROZEN:
        yield trained_layers(plan, int(best.value))
    if knob is Knob.MICRO_BATCH:
        yield "accumulation is kept, so the global batch grows with the micro-batch; halve one to double the other"

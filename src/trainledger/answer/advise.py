"""What to change: single changes and combinations, each a changed plan that is estimated again by the same code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from trainledger.answer.bands import Outside, largest, replayed_over, scaled
from trainledger.answer.changed import Data, planned
from trainledger.answer.check import check, check_model
from trainledger.answer.estimate import Estimate, architecture_of, device_of, estimate
from trainledger.answer.moves import Taken, taken, together
from trainledger.answer.prices import Cost, costs
from trainledger.answer.verdict import Verdict
from trainledger.base.problems import InputError
from trainledger.base.units import format_size
from trainledger.facts.move_prices import COMBINED
from trainledger.facts.moves_spare import SPARES
from trainledger.ledger.rank import rank_ledger
from trainledger.lines.stream import Moment
from trainledger.model.build import model_of
from trainledger.plan.lengths import at_longest
from trainledger.plan.schema import Plan

Report = Callable[[int, int], None]  # estimates made, and about how many are expected
LAYERS = re.compile(r"of layers? [\d ,to-]+")
OTHER = frozenset({"allocator"})  # groups that move what is reserved, not what is live


@dataclass(frozen=True, slots=True)
class Option:
    """One change or several together. Bytes: `saved` of the device's need; `at_peak`: of what is live at the moment
    that is the plan's peak now; `allocated` and `moment`: of the new peak. `costs`: its price in numbers."""

    taken: Taken
    saved: int
    at_peak: int
    need: int
    allocated: int
    moment: str
    verdict: Verdict
    costs: tuple[Cost, ...]

    @property
    def fits(self) -> bool:
        """Whether the changed plan fits."""
        return self.verdict.outcome == "fits"

    @property
    def rank(self) -> tuple[object, ...]:
        """What is named first: what fits before what is tight and what does not; then the cheaper; then bytes."""
        order = ("fits", "tight", "does-not-fit", None)
        if self.fits:
            return (0, *self.taken.level, -self.saved)
        return (1 + order.index(self.verdict.outcome), -self.saved)


@dataclass(frozen=True, slots=True)
class Idle:
    """A change that saves nothing at this peak, and why; or one that makes no plan."""

    taken: Taken
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """The plan as it stands (`now`), single changes and combinations (both best first), those that do nothing, and
    those that this plan cannot take. `spare`: of a plan that fits, what its room could buy and still fit."""

    now: Estimate
    need: int
    singles: tuple[Option, ...]
    combined: tuple[Option, ...]
    idle: tuple[Idle, ...]
    refused: tuple[Idle, ...]
    spare: tuple[Option, ...] = ()

    @property
    def best(self) -> tuple[Option, ...]:
        """Singles and combinations in one order, what is named first being the cheapest that fits."""
        return tuple(sorted((*self.singles, *self.combined), key=lambda option: option.rank))


@dataclass(frozen=True, slots=True)
class Draw:
    """A plan's moments without a replay, by name (those of layers as one), and the least that its device needs."""

    moments: dict[str, int]
    peak: Moment
    least: int


def advise(data: Data, report: Report | None = None, most: int = COMBINED.most) -> Advice:
    """What to change of a plan (keys as given), and what each change is worth at its peak; up to `most` changes
    together. Raises InputError for a plan that cannot be estimated."""
    plan = planned(data)
    now, before = estimate(plan), draw(plan)
    need = need_of(now)
    found, idle, refused = list[Taken](), list[Idle](), list[Idle]()
    for one in taken(data, plan):
        try:
            after = draw(planned(data, one.changes))
        except Exception as error:  # one change that the program cannot draw does not take the others away
            refused.append(Idle(one, _problem(error)))
            continue
        why = "" if any(move.group in OTHER for move in one.moves) else _idle(before, after)
        if why:
            idle.append(Idle(one, why))
        else:
            found.append(one)
    work = Work(data, now, need, report, len(found) + COMBINED.whole)
    singles = list[Option]()
    for one in found:
        option = work.option(one)
        least = need * COMBINED.nothing
        if option.saved > least or (option.fits and now.verdict.outcome != "fits"):
            singles.append(option)
        else:
            idle.append(Idle(one, _none(option, now, least)))
    singles.sort(key=lambda option: option.rank)
    combined = tuple(_combined(work, singles, most))
    spare = tuple(_spare(work, plan)) if now.verdict.outcome == "fits" else ()
    if report is not None:
        report(1, 1)
    return Advice(now, need, tuple(singles), combined, tuple(idle), tuple(refused), spare)


def _spare(work: Work, plan: Plan) -> Iterator[Option]:
    """What room to spare could buy: each change that takes memory and leaves a plan that fits."""
    for one in taken(work.data, plan, SPARES):
        try:
            option = work.option(one)
        except InputError:
            continue
        if option.fits:
            yield option


def need_of(answer: Estimate) -> int:
    """The bytes of a device that an estimate needs, expected: what its verdict compared."""
    return answer.verdict.need[1] if answer.verdict.need else answer.device.expected


def draw(plan: Plan) -> Draw:
    """A plan's moments by formula alone. Raises InputError where it cannot be estimated."""
    plan = at_longest(plan)
    check(plan)
    model = model_of(plan)
    check_model(plan, model)
    architecture = architecture_of(device_of(plan))
    ledger = rank_ledger(plan, model, architecture)
    found: dict[str, int] = {}
    for moment in ledger.moments:
        name = general(moment.name)
        found[name] = max(found.get(name, 0), moment.allocated)
    peak = largest(ledger.moments)
    need = Outside.of(architecture, plan, ledger).above(scaled(peak.allocated, replayed_over(plan).reserved))
    return Draw(found, peak, need.expected)


def general(name: str) -> str:
    """A moment's name with the layers left out: which of them is the largest differs from plan to plan."""
    return LAYERS.sub("of the layers", name)


class Work:
    """Whole estimates of changed plans, counted."""

    def __init__(self, data: Data, now: Estimate, need: int, report: Report | None, expected: int) -> None:
        self.data, self.now, self.need = data, now, need
        self._report, self._expected, self._done = report, expected, 0

    def option(self, one: Taken) -> Option:
        """What a change is worth. Raises InputError where the changed plan cannot be estimated."""
        after = estimate(planned(self.data, one.changes))
        self._done += 1
        if self._report is not None:
            self._report(self._done, max(self._expected, self._done + 1))
        peak, moments = self.now.peak, _moments(after)
        at_peak = peak.allocated.expected - moments.get(general(peak.moment), after.peak.allocated.expected)
        need = need_of(after)
        return Option(
            one, self.need - need, at_peak, need, after.peak.allocated.expected, after.peak.moment, after.verdict,
            costs(self.now, after),
        )  # fmt: skip


def _moments(answer: Estimate) -> dict[str, int]:
    found: dict[str, int] = {}
    for moment in answer.ledger.moments:
        found[general(moment.name)] = max(found.get(general(moment.name), 0), moment.allocated)
    return found


def _idle(before: Draw, after: Draw) -> str:
    """Why a change saves nothing at the peak; empty where it may save something."""
    saved = before.peak.allocated - after.peak.allocated
    if saved > before.peak.allocated * COMBINED.nothing or after.least < before.least:
        return ""
    drops = {name: size - after.moments[name] for name, size in before.moments.items() if name in after.moments}
    name = max(drops, key=lambda one: drops[one], default="")
    most = drops.get(name, 0)
    if most > before.peak.allocated * COMBINED.nothing:
        return f"it saves {format_size(most)} at {name}, but the peak is {before.peak.name}: that {_by(saved)}"
    if saved < 0:
        return f"it adds {format_size(-saved)} to the peak"
    return "no moment of this plan holds less with it"


def _none(option: Option, now: Estimate, least: float) -> str:
    if option.at_peak > least:
        return f"live bytes fall by {format_size(option.at_peak)} at {now.peak.moment}, what is reserved does not"
    if option.saved < -least:
        return f"the device needs {format_size(-option.saved)} more with it"
    return "what the device needs stays the same"


def _by(size: int) -> str:
    if size < 0:
        return f"rises by {format_size(-size)}"
    return f"falls by {format_size(size) if size else 0}"


def _problem(error: Exception) -> str:
    if not isinstance(error, InputError):
        return f"a defect of the program, please report it: {type(error).__name__} {error}".rstrip()
    first = error.problems[0]
    return f"{first.path}: {first.found}; {first.allowed}" if first.path else f"{first.found}; {first.allowed}"


def _combined(work: Work, singles: Sequence[Option], most: int) -> Iterator[Option]:
    """The best combinations of two and three of the best singles: drawn by formula first, the most promising whole.

    What has a part that fits already, and costs no more, is left out.
    """
    enough = [option.taken.parts for option in singles if option.fits]
    parts = _promising(singles)
    drawn: list[tuple[tuple[object, ...], Taken]] = []
    usable = _usable(work.now)
    for count in range(1 + 1, min(most, COMBINED.most) + 1):
        for some in combinations(parts, count):
            one = _all(some, work.data)
            if one is None or any(held <= one.parts for held in enough):
                continue
            try:
                least = draw(planned(work.data, one.changes)).least
            except Exception:  # what its parts refuse is listed with them
                continue
            open_ = usable is not None and least <= usable
            drawn.append(((not open_, *(one.level if open_ else ()), least), one))
    done: list[Option] = []
    for _, one in sorted(drawn, key=lambda pair: pair[0])[: COMBINED.whole]:
        option = work.option(one)
        less = [other for other in (*singles, *done) if other.taken.parts < one.parts]
        if all(option.saved > other.saved and not other.fits for other in less):
            done.append(option)
    yield from sorted(done, key=lambda option: option.rank)[: COMBINED.shown]


def _promising(singles: Sequence[Option]) -> list[Taken]:
    """The singles to combine: of each group the one that saves most, and the cheapest."""
    chosen: dict[str, Option] = {}
    for option in sorted(singles, key=lambda one: -one.saved):
        chosen.setdefault(option.taken.moves[0].group, option)
    for option in sorted(singles, key=lambda one: (one.taken.level, -one.saved)):
        chosen.setdefault(f"cheap {option.taken.moves[0].group}", option)
    each = {option.taken.parts: option for option in chosen.values()}
    ordered = sorted(each.values(), key=lambda one: -one.saved)
    return [option.taken for option in ordered[: COMBINED.singles]]


def _all(some: Sequence[Taken], data: Data) -> Taken | None:
    made: Taken | None = some[0]
    for one in some[1:]:
        made = together(made, one, data) if made else None
    return made


def _usable(now: Estimate) -> int | None:
    device = device_of(now.plan)
    return device.usable_bytes if device else None

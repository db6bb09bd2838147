"""What to change: single changes and combinations, each a changed plan that is estimated again by the same code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainledger.answer.advise_combined import combined
from trainledger.answer.advise_work import Draw, Idle, Option, Report, Work, draw
from trainledger.answer.changed import Data, planned
from trainledger.answer.estimate import Drawn, Estimate, drawn, estimated
from trainledger.answer.moves import Taken, taken
from trainledger.answer.walls import DEVICE, Wall
from trainledger.base.problems import InputError
from trainledger.base.units import format_size
from trainledger.facts.move_prices import COMBINED
from trainledger.facts.moves import MOVES
from trainledger.facts.moves_places import PLACE_MOVES
from trainledger.facts.moves_spare import SPARES
from trainledger.plan.schema import Plan

OTHER = frozenset({"allocator"})  # groups that move what is reserved, not what is live


@dataclass(frozen=True, slots=True)
class Advice:
    """The plan as it stands (`now`), the places that changes are measured at (`held`: those that do not fit, the one
    furthest over first; else the device's memory), single changes and combinations (both best first), those that do
    nothing, and those that this plan cannot take. `spare`: of a plan that fits, what its room could buy and still
    fit."""

    now: Estimate
    held: tuple[Wall, ...]
    singles: tuple[Option, ...]
    combined: tuple[Option, ...]
    idle: tuple[Idle, ...]
    refused: tuple[Idle, ...]
    spare: tuple[Option, ...] = ()

    @property
    def need(self) -> int:
        """Bytes that the place which is furthest over needs."""
        return self.held[0].need

    @property
    def best(self) -> tuple[Option, ...]:
        """Singles and combinations in one order, what is named first being the cheapest that fits."""
        return tuple(sorted((*self.singles, *self.combined), key=lambda option: option.rank))


def advise(data: Data, report: Report | None = None, most: int = COMBINED.most) -> Advice:
    """What to change of a plan (keys as given), and what each change is worth where the plan does not fit; up to `most`
    changes together. Raises InputError for a plan that cannot be estimated."""
    plan = planned(data)
    base = drawn(plan)
    work = Work(data, estimated(base), report)
    beside = any(one.place != DEVICE for one in work.held)
    some = list(taken(data, plan, (*MOVES, *PLACE_MOVES) if beside else MOVES))
    work.expected = len(some) + COMBINED.whole
    made = _Singles(work, draw(base))
    for one in some:
        made.tried(one)
    singles = sorted(made.found, key=lambda option: option.rank)
    more = tuple(combined(work, singles, most))
    spare = tuple(_spare(work, plan)) if work.fits else ()
    if report is not None:
        report(1, 1)
    return Advice(work.now, work.held, tuple(singles), more, (*made.drawn_idle, *made.idle), tuple(made.refused), spare)


class _Singles:
    """Single changes: by formula first, whole where that leaves open whether they save anything."""

    def __init__(self, work: Work, before: Draw) -> None:
        self.work, self.before = work, before
        self.found: list[Option] = []
        self.drawn_idle: list[Idle] = []
        self.idle: list[Idle] = []
        self.refused: list[Idle] = []

    def tried(self, one: Taken) -> None:
        """One change, into the list that it belongs to."""
        try:
            of = self.work.drawn(one)
            after = draw(of)
        except Exception as error:  # one change that the program cannot draw does not take the others away
            self.refused.append(Idle(one, _problem(error)))
            return
        why = _idle(self.before, after, self.work.held, any(move.group in OTHER for move in one.moves))
        if why:
            self.drawn_idle.append(Idle(one, why))
        else:
            self._whole(one, of)

    def _whole(self, one: Taken, of: Drawn) -> None:
        option, held = self.work.option(one, of), self.work.held
        saves = any(saved > wall.need * COMBINED.nothing for saved, wall in zip(option.saves, held, strict=True))
        if saves or (option.fits and not self.work.fits):
            self.found.append(option)
        else:
            self.idle.append(Idle(one, _none(option, held[0])))


def _spare(work: Work, plan: Plan) -> Iterator[Option]:
    """What room to spare could buy: each change that takes memory and leaves a plan that fits."""
    for one in taken(work.data, plan, SPARES):
        try:
            option = work.option(one)
        except InputError:
            continue
        if option.fits:
            yield option


def _idle(before: Draw, after: Draw, held: Sequence[Wall], reserved: bool) -> str:
    """Why a change saves nothing where the plan does not fit; empty where it may save something. `reserved`: it moves
    what is reserved of the device, which a ledger does not say."""
    if any(before.need(one.place) - after.need(one.place) > one.need * COMBINED.nothing for one in held):
        return ""
    first = held[0]
    if any(one.place == DEVICE for one in held):
        return "" if reserved else _no_peak(before, after)
    more, less = after.need(first.place) - before.need(first.place), before.least - after.least
    if more > 0:
        return f"{first.name} needs {format_size(more)} more with it"
    if less > before.least * COMBINED.nothing:
        return f"it saves {format_size(less)} of the device, but what does not fit is {first.name}, {first.moment}"
    return f"what {first.name} needs stays the same"


def _no_peak(before: Draw, after: Draw) -> str:
    """The same of the device's memory."""
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


def _none(option: Option, wall: Wall) -> str:
    least, what = wall.need * COMBINED.nothing, "the device" if wall.place == DEVICE else wall.name
    if option.at_peak > least and wall.place == DEVICE:
        return f"live bytes fall by {format_size(option.at_peak)} at {wall.moment}, what is reserved does not"
    if option.saved < -least:
        return f"{what} needs {format_size(-option.saved)} more with it"
    return f"what {what} needs stays the same"


def _by(size: int) -> str:
    if size < 0:
        return f"rises by {format_size(-size)}"
    return f"falls by {format_size(size) if size else 0}"


def _problem(error: Exception) -> str:
    if not isinstance(error, InputError):
        return f"a defect of the program, please report it: {type(error).__name__} {error}".rstrip()
    first = error.problems[0]
    return f"{first.path}: {first.found}; {first.allowed}" if first.path else f"{first.found}; {first.allowed}"

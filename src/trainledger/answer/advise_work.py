"""What one change of a plan is worth: its ledger before any replay, then its whole estimate, place by place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainledger.answer.bands import largest
from trainledger.answer.budgets import ORDER
from trainledger.answer.changed import Data, planned
from trainledger.answer.estimate import Drawn, Estimate, drawn, estimated
from trainledger.answer.moves import Taken
from trainledger.answer.prices import Cost, costs
from trainledger.answer.verdict import Verdict
from trainledger.answer.walls import DEVICE, FITS, Wall, beside_of, general, held_to, named, places_of, walls_of
from trainledger.facts.allocator_settings import PINNED
from trainledger.lines.stream import Moment

Report = Callable[[int, int], None]  # estimates made, and about how many are expected
PINNED_NAMES = frozenset(one.name for one in PINNED)  # the allocator's settings that a ledger goes by


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does at one place. Bytes: `saved` of its need; `then`: the place with the change."""

    saved: int
    then: Wall


@dataclass(frozen=True, slots=True)
class Option:
    """One change or several together. `effects`: at the places that the plan is held to, the one furthest over first,
    then at others that hold more or less with it. Bytes: `saved` of the first one's need; `at_peak`: of what is live at
    the moment that is this place's largest now; `need` and `moment`: the first place's then; `allocated`: of the
    device's new peak. `moved`: the place that does not fit then, where it is another one (else None); `costs`: the
    price in numbers."""

    taken: Taken
    held: int
    effects: tuple[Effect, ...]
    at_peak: int
    allocated: int
    verdict: Verdict
    moved: Wall | None
    costs: tuple[Cost, ...]

    @property
    def saved(self) -> int:
        """Bytes saved at the place that is furthest over."""
        return self.effects[0].saved

    @property
    def saves(self) -> tuple[int, ...]:
        """Bytes saved at each place that the plan is held to."""
        return tuple(one.saved for one in self.effects[: self.held])

    @property
    def need(self) -> int:
        """Bytes that the first place needs then."""
        return self.effects[0].then.need

    @property
    def moment(self) -> str:
        """The first place's largest moment then."""
        return self.effects[0].then.moment

    @property
    def fits(self) -> bool:
        """Whether the changed plan fits, at every place."""
        return self.verdict.outcome == FITS

    @property
    def rank(self) -> tuple[object, ...]:
        """What is named first: what fits before what is tight and what does not; then the cheaper; then bytes."""
        order = (*ORDER, None)
        less = tuple(-size for size in self.saves)
        if self.fits:
            return (0, *self.taken.level, *less)
        return (1 + order.index(self.verdict.outcome), *less)


@dataclass(frozen=True, slots=True)
class Idle:
    """A change that saves nothing where it would count, and why; or one that makes no plan."""

    taken: Taken
    why: str


@dataclass(frozen=True, slots=True)
class Draw:
    """A plan's moments without a replay, by name (those of layers as one), its peak, the least that its device needs,
    and the other places."""

    moments: Mapping[str, int]
    peak: Moment
    least: int
    beside: tuple[Wall, ...]

    def need(self, place: str) -> int:
        """Bytes that a place needs at least."""
        return self.least if place == DEVICE else next((one.need for one in self.beside if one.place == place), 0)


def draw(of: Drawn) -> Draw:
    """A plan's moments by formula alone."""
    found = named((moment.name, moment.allocated) for moment in of.ledger.moments)
    return Draw(found, largest(of.ledger.moments), of.least.expected, beside_of(of))


class Work:
    """Whole estimates of changed plans, counted. `places`: what the plan's places need as it stands; `held`: those that
    changes are measured at; `expected`: about how many estimates there will be."""

    def __init__(self, data: Data, now: Estimate, report: Report | None) -> None:
        self.data, self.now = data, now
        self.places = places_of(now)
        self.held = held_to(self.places)
        self.expected = self._done = 0
        self._report = report
        self._draws: dict[str, Draw] = {}

    @property
    def fits(self) -> bool:
        """Whether the plan fits as it stands."""
        return self.now.verdict.outcome == FITS

    def drawn(self, one: Taken) -> Drawn:
        """The ledger of a changed plan. Raises InputError where it cannot be estimated."""
        return drawn(planned(self.data, one.changes))

    def draw(self, one: Taken) -> Draw:
        """The moments of a changed plan; of plans that differ by the allocator's settings alone, made once. Raises
        InputError where it cannot be estimated."""
        plan = planned(self.data, one.changes)
        kept = {name: value for name, value in plan.stack.allocator.items() if name in PINNED_NAMES}
        key = repr(plan.model_copy(update={"stack": plan.stack.model_copy(update={"allocator": kept})}))
        if key not in self._draws:
            self._draws[key] = draw(drawn(plan))
        return self._draws[key]

    def option(self, one: Taken, of: Drawn | None = None) -> Option:
        """What a change is worth; `of`: its ledger, where it is there already. Raises InputError where the changed plan
        cannot be estimated."""
        after = estimated(of or self.drawn(one))
        self._done += 1
        if self._report is not None:
            self._report(self._done, max(self.expected, self._done + 1))
        places = places_of(after)
        effects = tuple(self._effects(places))
        first, then = self.held[0], effects[0].then
        moment = general(first.moment)
        at_peak = first.moments.get(moment, first.largest) - then.moments.get(moment, then.largest)
        walls = walls_of(places)
        moved = walls[0] if walls and walls[0].place != first.place else None
        held, peak = len(self.held), after.peak.allocated.expected
        return Option(one, held, effects, at_peak, peak, after.verdict, moved, costs(self.now, after))

    def _effects(self, places: Sequence[Wall]) -> Iterator[Effect]:
        """The places that the plan is held to, then others that hold more or less than before."""
        before, then = {one.place: one for one in self.places}, {one.place: one for one in places}
        held = [one.place for one in self.held]
        for place in dict.fromkeys((*held, *before, *then)):
            was, now = before.get(place), then.get(place)
            saved = (was.need if was else 0) - (now.need if now else 0)
            if place in held or saved:
                known = now or was
                assert known is not None
                yield Effect(saved, now or replace(known, need=0, outcome=None, moments={}))

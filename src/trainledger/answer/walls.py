"""Where a plan does not fit: what every place needs against what it has, the one that is furthest over first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainledger.answer.budgets import ORDER, Budgets, asked, budgets_of
from trainledger.answer.estimate import Drawn, Estimate, device_of
from trainledger.answer.verdict import Outcome, judge
from trainledger.base.places import Place
from trainledger.plan.lengths import at_longest

DEVICE = Place.DEVICE.value
DEVICE_NAME = "device memory"
FITS = ORDER[0]
LAYERS = re.compile(r"of layers? [\d ,to-]+")


@dataclass(frozen=True, slots=True)
class Wall:
    """One place at its largest moment: expected bytes of `need`, and the bytes that are usable (None: nothing says
    them, and there is no outcome). `moments`: the bytes that it holds at each of its moments; of the device live ones,
    those of layers under one name."""

    place: str
    name: str
    moment: str
    need: int
    usable: int | None
    outcome: Outcome | None
    moments: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def largest(self) -> int:
        """The bytes of its largest moment."""
        return max(self.moments.values(), default=self.need)

    @property
    def over(self) -> float:
        """What is needed as a share of what is there."""
        return self.need / self.usable if self.usable else float(bool(self.need))


def needed(answer: Estimate) -> int:
    """The bytes of a device that an estimate needs, expected: what its verdict compared."""
    return answer.verdict.need[1] if answer.verdict.need else answer.device.expected


def places_of(answer: Estimate) -> tuple[Wall, ...]:
    """The device's memory, and every other place that holds something where the plan says something of one."""
    need, margin = needed(answer), answer.verdict.margin
    usable = None if margin is None else margin + need
    own = judge(usable, *answer.verdict.need).outcome if answer.verdict.need else None
    plan = at_longest(answer.plan)
    live = named((moment.name, moment.allocated) for moment in answer.ledger.moments)
    device = Wall(DEVICE, DEVICE_NAME, answer.peak.moment, need, usable, own, live)
    if not asked(plan):
        return (device,)
    where = (device_of(plan), answer.parameters.trainable)
    return (device, *_beside(budgets_of(plan, answer.model, answer.ledger, where)))


def beside_of(of: Drawn) -> tuple[Wall, ...]:
    """The places besides the device, from a ledger that was not replayed: none of them depends on a replay."""
    if not asked(of.plan):
        return ()
    return tuple(_beside(budgets_of(of.plan, of.model, of.ledger, (of.device, of.trained))))


def _beside(found: Budgets) -> Iterator[Wall]:
    host = {one.name: one.band.expected for one in found.host}
    for one in found.budgets:
        need, margin = one.need.expected, one.verdict.margin
        usable = None if margin is None else margin + need
        moments = host if one.place == Place.HOST else {one.moment: need}
        yield Wall(one.place, one.name, one.moment, need, usable, one.verdict.outcome, moments)


def named(moments: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Moments by name, those of layers as one: the largest of each name (bytes)."""
    found: dict[str, int] = {}
    for name, size in moments:
        found[general(name)] = max(found.get(general(name), 0), size)
    return found


def general(name: str) -> str:
    """A moment's name with the layers left out: which of them is the largest differs from plan to plan."""
    return LAYERS.sub("of the layers", name)


def walls_of(places: Sequence[Wall]) -> tuple[Wall, ...]:
    """The places that do not fit, or may not: what does not before what is tight, then by how far it is over."""
    failing = [one for one in places if one.outcome not in (None, FITS)]
    return tuple(sorted(failing, key=lambda one: (-ORDER.index(one.outcome or FITS), -one.over)))


def held_to(places: Sequence[Wall]) -> tuple[Wall, ...]:
    """The places that a change is measured at: those that do not fit; where all do, or nothing is known of any, the
    device's memory."""
    return walls_of(places) or tuple(places[:1])

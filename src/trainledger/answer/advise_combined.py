"""Changes together: the best combinations of two and three of the best singles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from trainledger.answer.advise_work import Draw, Option, Work
from trainledger.answer.changed import Data
from trainledger.answer.moves import Taken, together
from trainledger.answer.walls import Wall
from trainledger.facts.move_prices import COMBINED


def combined(work: Work, singles: Sequence[Option], most: int) -> Iterator[Option]:
    """The best combinations of two and three of the best singles: drawn by formula first, the most promising whole.

    What has a part that fits already, and costs no more, is left out.
    """
    enough = [option.taken.parts for option in singles if option.fits]
    parts = _promising(singles, work.held)
    drawn: list[tuple[tuple[object, ...], Taken]] = []
    for count in range(1 + 1, min(most, COMBINED.most) + 1):
        for some in combinations(parts, count):
            one = _all(some, work.data)
            if one is None or any(held <= one.parts for held in enough):
                continue
            try:
                found = work.draw(one)
            except Exception:  # what its parts refuse is listed with them
                continue
            open_ = _open(found, work.places)
            least = tuple(found.need(wall.place) for wall in work.held)
            drawn.append(((not open_, *(one.level if open_ else ()), least), one))
    done: list[Option] = []
    for _, one in sorted(drawn, key=lambda pair: pair[0])[: COMBINED.whole]:
        option = work.option(one)
        less = [other for other in (*singles, *done) if other.taken.parts < one.parts]
        if all(option.saves > other.saves and not other.fits for other in less):
            done.append(option)
    yield from sorted(done, key=lambda option: option.rank)[: COMBINED.shown]


def _open(found: Draw, places: Sequence[Wall]) -> bool:
    """Whether every place that is known has room for the least that is needed."""
    usable = {one.place: one.usable for one in (*places, *found.beside) if one.usable is not None}
    return bool(usable) and all(found.need(place) <= size for place, size in usable.items())


def _promising(singles: Sequence[Option], held: Sequence[Wall]) -> list[Taken]:
    """The singles to combine: of each group the one that saves most at each place, and the cheapest."""
    chosen: dict[str, Option] = {}
    for at, _ in enumerate(held):
        for option in sorted(singles, key=lambda one: -one.saves[at]):
            chosen.setdefault(f"{at} {option.taken.moves[0].group}", option)
    for option in sorted(singles, key=lambda one: (one.taken.level, *(-saved for saved in one.saves))):
        chosen.setdefault(f"cheap {option.taken.moves[0].group}", option)
    each = {option.taken.parts: option for option in chosen.values()}
    ordered = sorted(each.values(), key=lambda one: -_most(one, held))
    return [option.taken for option in ordered[: COMBINED.singles]]


def _most(option: Option, held: Sequence[Wall]) -> float:
    """The largest share of a place's need that a change saves."""
    return max(saved / max(wall.need, 1) for saved, wall in zip(option.saves, held, strict=True))


def _all(some: Sequence[Taken], data: Data) -> Taken | None:
    made: Taken | None = some[0]
    for one in some[1:]:
        made = together(made, one, data) if made else None
    return made

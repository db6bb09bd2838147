"""Advice as sections of text, and as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from trainledger.answer.advise import Advice
from trainledger.answer.advise_work import Effect, Idle, Option
from trainledger.answer.changed import LEFT_OUT
from trainledger.answer.prices import Cost
from trainledger.answer.walls import DEVICE, Wall
from trainledger.base.units import format_count
from trainledger.facts.move_row import Price
from trainledger.show.compare import signed
from trainledger.show.document import plain_value
from trainledger.show.estimate import OUTCOMES, View, verdict_section
from trainledger.show.table import Section


class Line(Protocol):
    """A line of a user's file: where, what to write, what stands there now, and the plan's key."""

    @property
    def place(self) -> str:
        """`file:line`, or the file."""

    @property
    def text(self) -> str:
        """The line as it should be."""

    @property
    def was(self) -> str:
        """The value there now, where it is known as the file has it."""

    @property
    def stands(self) -> bool:
        """Whether the key is known to stand there."""

    @property
    def path(self) -> str:
        """The plan's key."""


Lines = Callable[[Option], Sequence[Line]]


def sections(found: Advice, lines: Lines, view: View, top: int) -> tuple[Section, ...]:
    """Everything that `advise` prints: the `top` best changes in full, and tables of all."""
    best = found.best
    return (
        verdict_section(found.now.verdict, view),
        _peak(found, view),
        _table("What to change: what fits first, the cheapest before the dearer", best, view),
        *(_detail(number, option, lines(option), view) for number, option in enumerate(best[:top], 1)),
        _spare(found.spare, lines, view),
        _idle("Changes that save nothing here", found.idle),
        _idle("Changes that this plan cannot take, or that cannot be estimated", found.refused),
    )


def document(found: Advice, lines: Lines) -> dict[str, Any]:
    """What `advise --json` prints: sizes in bytes."""
    return {
        "place": found.held[0].place,
        "need": found.need,
        "moment": found.held[0].moment,
        "places": [_wall(one) for one in found.held],
        "allocated": found.now.peak.allocated.expected,
        "outcome": found.now.verdict.outcome,
        "best": [_option(option, lines(option)) for option in found.best],
        "spare": [_option(option, lines(option)) for option in found.spare],
        "nothing": [_reason(one) for one in found.idle],
        "refused": [_reason(one) for one in found.refused],
    }


def _wall(one: Wall) -> dict[str, Any]:
    return {
        "place": one.place,
        "name": one.name,
        "moment": one.moment,
        "need": one.need,
        "usable": one.usable,
        "outcome": one.outcome,
    }


def _reason(one: Idle) -> dict[str, Any]:
    return {"moves": [move.name for move in one.taken.moves], "why": one.why}


def _option(option: Option, lines: Sequence[Line]) -> dict[str, Any]:
    return {
        "moves": [move.name for move in option.taken.moves],
        "sets": [
            {
                "path": one.path,
                "value": None if one.value is LEFT_OUT else plain_value(one.value),
                "left_out": one.value is LEFT_OUT,
            }
            for one in option.taken.changes
        ],
        "place": option.effects[0].then.place,
        "saved": option.saved,
        "saved_at_peak": option.at_peak,
        "need": option.need,
        "allocated": option.allocated,
        "moment": option.moment,
        "outcome": option.verdict.outcome,
        "margin": option.verdict.margin,
        "places": [{"saved": one.saved, **_wall(one.then)} for one in option.effects],
        "moved_to": option.moved.place if option.moved else None,
        "price": list(_prices(option)),
        "numerics": [move.numerics for move in option.taken.moves if move.numerics],
        "needs": [move.needs for move in option.taken.moves if move.needs],
        "costs": [
            {"what": cost.what, "amount": cost.amount, "unit": cost.unit, "why": cost.why} for cost in option.costs
        ],
        "lines": [
            {"place": one.place, "text": one.text, "was": one.was, "stands": one.stands, "key": one.path}
            for one in lines
        ],
    }


def _peak(found: Advice, view: View) -> Section:
    """Where the plan does not fit, the place that is furthest over first; else the device's peak."""
    now, first = found.now, found.held[0]
    if first.place == DEVICE:
        title = (
            f"The peak is {now.peak.moment}: {view.size(now.peak.allocated.expected)} allocated, "
            f"{view.size(found.need)} of the device"
        )
        text = ["a change helps only by what it saves at that moment"]
    else:
        title = f"What does not fit is {_told(first, view)}"
        text = ["a change helps only by what it saves there"]
    text += [f"nor does {_told(one, view)}" for one in found.held[1:]]
    return Section(title, tuple(text))


def _told(one: Wall, view: View) -> str:
    usable = f", {view.size(one.usable)} usable" if one.usable is not None else ""
    return f"{one.name}, {one.moment}: {view.size(one.need)} needed{usable}"


def _table(title: str, options: Sequence[Option], view: View) -> Section:
    rows = tuple(
        (
            f"{number}",
            option.taken.name,
            view.size(option.saved),
            view.size(option.need),
            OUTCOMES[option.verdict.outcome][0],
            option.moment,
        )
        for number, option in enumerate(options, 1)
    )
    header = ("", "change", "saves", "needs then", "verdict", "peak then at")
    return Section(title if rows else "No change of the tables saves anything here", (), header, rows, (2, 3))


def _spare(options: Sequence[Option], lines: Lines, view: View) -> Section:
    rows = []
    for option in options:
        more = [f"{cost.what}: {_amount(cost, view)}" for cost in option.costs]
        gain = "; ".join([move.numerics for move in option.taken.moves] + more)
        rows.append((option.taken.name, view.size(abs(option.saved)), view.size(option.need), option.moment, gain))
        rows.extend((f"  {line.place}   {line.text}", "", "", "", "") for line in lines(option))
    header = ("change", "takes", "needs then", "peak then at", "gains")
    return Section("Room to spare: what it could buy, each by itself, and still fit", (), header, tuple(rows), (1, 2))


def _detail(number: int, option: Option, lines: Sequence[Line], view: View) -> Section:
    outcome, less = OUTCOMES[option.verdict.outcome][0].lower(), "fewer" if option.at_peak >= 0 else "more"
    then = option.effects[0].then
    name, where = ("the device", "live at this peak") if then.place == DEVICE else (then.name, "at the same moment")
    text = [
        f"saves    {view.size(option.saved)} of {name}; {view.size(abs(option.at_peak))} {less} {where}",
        f"then     {outcome}, {view.size(option.need)} needed, peak at {option.moment}",
        *(f"also     {_also(one, view)}" for one in option.effects[1:]),
        *([f"but then {_told(option.moved, view)} does not fit"] if option.moved else []),
        f"price    {'; '.join(_prices(option))}",
        *(f"         {_cost(cost, view)}" for cost in option.costs),
        *(f"numerics {move.numerics}" for move in option.taken.moves if move.numerics),
        *(f"needs    {move.needs}" for move in option.taken.moves if move.needs),
        *_written(lines),
    ]
    return Section(f"{number}. {option.taken.name}", tuple(text))


def _also(one: Effect, view: View) -> str:
    """What a change does at another place."""
    return f"{view.size(abs(one.saved))} {'less' if one.saved >= 0 else 'more'} of {_told(one.then, view)}"


def _prices(option: Option) -> tuple[str, ...]:
    """The prices in words, each once; that one part costs no time is no word beside another's price."""
    found = dict.fromkeys(move.price for move in option.taken.moves)
    return tuple(one.value for one in found if one is not Price.FREE or len(found) == 1)


def _written(lines: Sequence[Line]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if line.place == "--set" and not line.stands:
            how = "(the files' format has no word for it that is known here)"
        elif line.was:
            how = f"(now {line.was})"
        else:
            how = "(change)" if line.stands else "(add, or change where it stands)"
        yield f"{'write   ' if number == 0 else '        '} {line.place}   {line.text}   {how}"


def _cost(cost: Cost, view: View) -> str:
    """A number of a price with its unit and its rule."""
    return f"{cost.what}: {_amount(cost, view)} ({cost.why})"


def _amount(cost: Cost, view: View) -> str:
    if cost.unit == "B":
        return signed(round(cost.amount), view)
    if cost.unit == "s":
        return f"{cost.amount:.2f} s"
    if cost.unit.startswith("of "):
        return f"{cost.amount:+.1%} {cost.unit}"
    return f"{format_count(cost.amount)} {cost.unit}"


def _idle(title: str, found: Sequence[Idle]) -> Section:
    return Section(title, (), ("change", "why"), tuple((one.taken.name, one.why) for one in found))

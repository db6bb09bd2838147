"""How long a compiled layer holds its buffers: Inductor's memory plan, and its order of collectives.

A buffer that a later one of the same size and dtype takes is not freed between: the later one is the same tensor. And
what a collective returns stays until the next collective has been issued, whose order hangs on it. What kernels outside
of Inductor return (attention, collectives) takes no buffer, but may be taken; what the graph was handed never is.
Source: torch/_inductor/codegen/wrapper.py, AllocateLine.plan, buffer_reuse_key; torch/_inductor/comms.py,
decide_global_ordering_of_comms (v2.5 to v2.8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from trainledger.ledger.engine import Backward
from trainledger.ledger.rules_parallel import GATHERED, SCATTERED
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import Events, Forward

ATTENTION, FUSED = "sdpa", "fused"
COLLECTIVES = frozenset({GATHERED, SCATTERED, "all_reduce"})


class Span(NamedTuple):
    """The events of one primitive's function: its kind, the first and the one after the last; whether in backward."""

    kind: str
    first: int
    last: int
    backward: bool


def spans(tape: Tape, turns: dict[int, tuple[int, int]], by: int = 0, backward: bool = False) -> list[Span]:
    """The spans of primitives whose turns are counted from an event on."""
    return [Span(tape.prims[at].kind, by + first, by + last, backward) for at, (first, last) in turns.items()]


def held(tape: Tape, events: Events, parts: Iterable[Span]) -> tuple[Events, Callable[[int], int]]:
    """The events with later deaths, and how many of them come up to where so many of the given ones do."""
    parts = tuple(parts)
    sent, outside = _returned(events, parts, tape.piped)
    order = _taken(tape, events, outside, _written_over(tape, events, parts, _chained(events, sent)))
    places = {old: new for new, old in enumerate(order)}
    moved, last = set[int](), -1  # deaths that come later
    for old in order:
        if old < last:
            moved.add(old)
        last = max(last, old)

    def at(count: int) -> int:
        anchor = next((old for old in range(count - 1, -1, -1) if old not in moved), None)
        return 0 if anchor is None else places[anchor] + 1

    return [events[old] for old in order], at


def _returned(events: Events, parts: Iterable[Span], piped: bool) -> tuple[set[int], set[int]]:
    """Places of births of what collectives return, and of all that Inductor does not allocate. Of collectives that run
    within products (`piped`) only the sums of inputs' gradients, which several products make, stand by themselves."""
    sent, outside = set[int](), set[int]()
    for kind, first, last, backward in parts:
        born = [at for at in range(first, min(last, len(events))) if events[at] > 0]
        if kind == ATTENTION:
            outside.update(born)
        elif kind in COLLECTIVES and born:
            # backward gathers before it lays parts side by side, and lays them so before it adds up
            found = born[-2:-1] or born if kind == SCATTERED and backward else born[-1:] if backward else born
            if piped and not (kind == GATHERED and backward):
                outside.update(born)
            else:
                sent.update(found)
    return sent, outside | sent


def _chained(events: Events, sent: set[int]) -> list[int]:
    """The order of events in which what a collective returned dies after the next one's is there."""
    waiting: dict[int, int] = {}  # by place of a birth: that of the death
    alive: dict[int, list[int]] = {}
    for at, event in enumerate(events):
        if event > 0:
            alive.setdefault(event, []).append(at)
        elif alive.get(-event):
            waiting[alive[-event].pop()] = at
    late: dict[int, list[int]] = {}
    places = sorted(sent)
    for one, following in pairwise(places):
        if one in waiting and waiting[one] < following:
            late.setdefault(following, []).append(waiting[one])
    gone = {at for row in late.values() for at in row}
    order: list[int] = []
    for at in range(len(events)):
        if at not in gone:
            order.append(at)
        order += late.get(at, ())
    return order


def _written_over(tape: Tape, events: Events, parts: Iterable[Span], order: list[int]) -> list[int]:
    """That order, where an elementwise kernel writes over what it reads last."""
    early: dict[int, int] = {}  # by place of a birth: that of the death
    born = {event: at for at, event in enumerate(events) if event > 0}
    for kind, first, last, _ in parts:
        if kind != FUSED:
            continue
        deaths = [at for at in range(first, last) if events[at] < 0]
        for at in range(last, len(events)):
            if events[at] >= 0:
                break
            deaths.append(at)
        deaths = [at for at in deaths if born.get(-events[at], len(events)) < first]
        for at in range(first, last):
            found = next(
                (one for one in deaths if at < one and _key(tape, events[one]) == _key(tape, events[at])), None
            )
            if events[at] > 0 and found is not None:
                deaths.remove(found)
                early[at] = found
    return _moved(order, early)


def _key(tape: Tape, event: int) -> tuple[str, int]:
    """What a buffer and the one that takes it have in common."""
    storage = tape.storages[abs(event) - 1]
    return storage.dtype.name, storage.size


def _taken(tape: Tape, events: Events, outside: set[int], order: list[int]) -> list[int]:
    """That order, where what a later buffer takes dies as that is born."""
    free: dict[tuple[str, int], list[int]] = {}
    alive = set[int]()
    before: dict[int, int] = {}  # by place of a birth: that of the death
    for at in order:
        event, key = events[at], _key(tape, events[at])
        if event > 0:
            alive.add(event)
            if at not in outside and free.get(key):
                before[at] = free[key].pop()
        elif -event in alive:
            alive.discard(-event)
            free.setdefault(key, []).append(at)
    return _moved(order, before)


def _moved(order: list[int], before: dict[int, int]) -> list[int]:
    """The order with some deaths right before the births that take them."""
    gone = set(before.values())
    return [one for at in order if at not in gone for one in ((before[at], at) if at in before else (at,))]


def planned(tape: Tape, forward: Forward) -> Forward:
    """A forward as the compiler's plan has it; the forward itself where there is none."""
    if not tape.planned:
        return forward
    events, at = held(tape, forward.events, spans(tape, forward.turns))
    turns = {prim: (at(first), at(last)) for prim, (first, last) in forward.turns.items()}
    return Forward(events, forward.held, forward.outside, turns)


def replan(back: Backward, again: Sequence[Span]) -> Callable[[int], int]:
    """Change a backward to the compiler's plan, which holds what runs again (`again`) and the rest as one graph; how
    many events come up to where so many did before."""
    if not back.tape.planned:
        return lambda count: count
    back.events, at = held(back.tape, back.events, (*again, *spans(back.tape, back.turns, backward=True)))
    back.turns = {prim: (at(first), at(last)) for prim, (first, last) in back.turns.items()}
    back.arrived = [one._replace(at=at(one.at)) for one in back.arrived]
    return at

"""Calls of modules while a piece runs: which parameters each reads, and after how many events it begins and returns.

A strategy that gathers parameters module by module acts at these points, forward, in a forward that runs again, and
backward, where a module begins as its result's gradient arrives and returns when its input's gradient is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from trainledger.model.decoder import weights_of
from trainledger.model.program import (
    Act,
    BestRouter,
    ClampedExperts,
    Dropout,
    Embed,
    Experts,
    GroupRouter,
    Linear,
    LowRouter,
    Norm,
    Op,
    Router,
    Weight,
)

MODULES = (Act, BestRouter, ClampedExperts, Dropout, Embed, Experts, GroupRouter, Linear, LowRouter, Norm, Router)
Turns = Mapping[int, tuple[int, int]]  # by primitive: events there are as it begins, and as it has returned


class Call(NamedTuple):
    """An operation: its module's path, the parameters it reads, whether it is a call of a module, whether its input can
    need a gradient, its first primitive and the one after its last; whether its node saves a view of its weight, the
    first of its parameters, where others save the parameter itself."""

    name: str
    weights: tuple[Weight, ...]
    module: bool
    passes: bool
    first: int
    last: int
    views: bool = False


class Visit(NamedTuple):
    """A call begins or (`done`) has returned after `at` events; `again`: in a forward that runs again in backward."""

    call: Call
    at: int
    done: bool
    again: bool = False


class Again(NamedTuple):
    """A forward that runs again in backward: its turns, after how many events of backward it begins, and in which
    primitive it is left."""

    turns: Turns
    start: int
    last: int


@dataclass(frozen=True, slots=True)
class Visits:
    """Where a piece's calls are visited: its calls, its primitives' turns forward (`ahead`) and backward (`back`), and
    those of a forward that runs again. Few strategies ask for the visits themselves, so these are not kept. `bound`:
    after how many events of forward a caller's name was bound to what it made (0: none was)."""

    calls: Sequence[Call] = ()
    ahead: Turns = field(default_factory=dict)
    back: Turns = field(default_factory=dict)
    again: Again | None = None
    bound: int = 0

    @property
    def forward(self) -> tuple[Visit, ...]:
        """Visits of forward in order."""
        return _ahead(self.calls, self.ahead)

    @property
    def backward(self) -> tuple[Visit, ...]:
        """Visits of backward in order."""
        back = _behind(self.calls, self.back)
        if self.again is None:
            return back
        _, start, last = self.again
        return _woven(back, _anew(self.calls, *self.again), start, last)

    def without(self, gone: int) -> Visits:
        """These without event number `gone` of a backward in which no forward runs again."""
        back = {at: (start - (start > gone), end - (end > gone)) for at, (start, end) in self.back.items()}
        return replace(self, back=back)

    def later(self, by: int) -> Visits:
        """These with so many more events ahead of the backward."""
        back = {at: (start + by, end + by) for at, (start, end) in self.back.items()}
        if self.again is None:
            return replace(self, back=back)
        turns, start, last = self.again
        return replace(self, back=back, again=Again(turns, start + by, last))


NOWHERE = Visits()


def call_of(op: Op, first: int, last: int) -> Call:
    """The call of an operation that these primitives of a tape make up."""
    module = isinstance(op.spec, MODULES)
    views = isinstance(op.spec, Linear) and not op.spec.conv1d and op.spec.weight.packed is None
    return Call(op.name, weights_of((op,)), module, not isinstance(op.spec, Embed), first, last, views)


def _ahead(calls: Sequence[Call], turns: Turns) -> tuple[Visit, ...]:
    """Visits of a forward."""
    found: list[Visit] = []
    for call in calls:
        if call.first in turns and call.last > call.first:
            found.append(Visit(call, turns[call.first][0], False))
            found.append(Visit(call, turns[call.last - 1][1], True))
    return tuple(found)


def _behind(calls: Sequence[Call], turns: Turns) -> tuple[Visit, ...]:
    """Visits of a backward: calls that a gradient reached, last to first."""
    found: list[Visit] = []
    for call in reversed(calls):
        ran = [turns[at] for at in range(call.first, call.last) if at in turns]
        if ran:
            found.append(Visit(call, ran[-1][0], False))
            found.append(Visit(call, ran[0][1], True))
    return tuple(found)


def _anew(calls: Sequence[Call], turns: Turns, start: int, last: int) -> tuple[Visit, ...]:
    """Visits of a forward that runs again after `start` events and stops inside primitive `last`: the call that has it
    begins, and is left without returning."""
    found: list[Visit] = []
    for call in calls:
        if call.first > last or call.first not in turns or call.last == call.first:
            continue
        found.append(Visit(call, start + turns[call.first][0], False, True))
        if call.last <= last:
            found.append(Visit(call, start + turns[call.last - 1][1], True, True))
    return tuple(found)


def _woven(back: Sequence[Visit], again: Sequence[Visit], start: int, last: int) -> tuple[Visit, ...]:
    """Visits of a backward whose forward runs again after `start` events, when primitive `last` asks for what it saved:
    the call that has it, and those after it, begin before."""
    found: list[Visit] = []
    waiting = list(again)
    for visit in back:
        early, asks = not visit.done and visit.call.last > last, visit.call.first <= last < visit.call.last
        if waiting and not early and visit.at > start:
            found += waiting
            waiting = []
        found.append(visit._replace(at=min(visit.at, start)) if early and asks else visit)
        if waiting and asks:
            found += waiting
            waiting = []
    return (*found, *waiting)

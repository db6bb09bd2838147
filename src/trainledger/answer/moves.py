"""Which changes of the tables a plan can take, with the values that they give its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainledger.answer.changed import LEFT_OUT, Change, Data, LeftOut, planned, value_of, with_changes
from trainledger.answer.unfrozen import paths_of
from trainledger.base.problems import InputError
from trainledger.facts.move_row import AtLeast, Last, Move, Out, Own, Plus, Set, Times, When
from trainledger.facts.moves import LEVELS, MOVES
from trainledger.model.build import build
from trainledger.plan.schema import Plan, as_mapping


@dataclass(frozen=True, slots=True)
class Taken:
    """One or more moves together, and the changes of the plan's keys that they make."""

    moves: tuple[Move, ...]
    changes: tuple[Change, ...]

    @property
    def name(self) -> str:
        """What is done, in words."""
        return " + ".join(move.name for move in self.moves)

    @property
    def parts(self) -> frozenset[tuple[str, str]]:
        """Its moves by group and name."""
        return frozenset((move.group, move.name) for move in self.moves)

    @property
    def level(self) -> tuple[int, ...]:
        """How dear it is: the dearest part, then how many parts, then the others."""
        levels = sorted((LEVELS.index(move.price) for move in self.moves), reverse=True)
        return (levels[0], len(levels), *levels[1:])


def taken(data: Data, plan: Plan, moves: Sequence[Move] = MOVES) -> Iterator[Taken]:
    """Every move whose conditions the plan meets and that changes something of it, in the tables' order."""
    resolved = as_mapping(plan)
    for move in moves:
        if all(_meets(resolved, one) for one in move.when):
            changes = _changes(move, data, resolved)
            if changes:
                yield Taken((move,), changes)


def together(first: Taken, second: Taken, data: Data) -> Taken | None:
    """Both at once; None where they are of one group, or one's values do not allow the other."""
    groups = {move.group for move in first.moves}
    if any(move.group in groups for move in second.moves):
        return None
    changed = with_changes(data, first.changes)
    try:
        resolved = as_mapping(planned(changed))
    except InputError:
        return None
    made = first
    for move in second.moves:
        if not all(_meets(resolved, one) for one in move.when):
            return None
        changes = _changes(move, changed, resolved)
        if not changes:
            return None
        made = Taken((*made.moves, move), (*made.changes, *changes))
    return made


def _meets(resolved: Mapping[str, Any], condition: When) -> bool:
    path, allowed = condition
    value = value_of(resolved, path)
    if isinstance(value, LeftOut):
        value = None
    if isinstance(allowed, Set):
        return (value is not None) == allowed.given
    if isinstance(allowed, AtLeast):
        if value is None:
            return allowed.or_none
        return isinstance(value, int) and allowed.least <= value <= (value if allowed.most is None else allowed.most)
    return value in allowed


def _changes(move: Move, data: Data, resolved: Mapping[str, Any]) -> tuple[Change, ...]:
    """The changes that make a difference; none at all where a value cannot be made of the plan's."""
    made = list[Change]()
    for path, told in move.sets:
        if isinstance(told, Own):
            made += _own(path, with_changes(data, made), value_of(resolved, path))
            continue
        if isinstance(told, Times) and value_of(resolved, path) in (LEFT_OUT, None):
            continue  # a key that the plan leaves out stays left out
        value = _last(told, resolved) if isinstance(told, Last) else _value(told, value_of(resolved, path))
        if value is None and told is not None:
            return ()
        given = value_of(data, path)
        if isinstance(value, LeftOut):
            made += [Change(path, value)] if given is not LEFT_OUT else []
        elif value != given:
            made.append(Change(path, value))
    return tuple(made)


def _last(told: Last, resolved: Mapping[str, Any]) -> list[str]:
    paths = paths_of(build(resolved["model"]))
    return list(paths[len(paths) - max(len(paths) * told.up // told.down, 1) :])


def _own(path: str, data: Data, own: object) -> list[Change]:
    """The change that keeps a key's value, where the changed plan would not have it."""
    try:
        then = value_of(as_mapping(planned(data)), path)
    except InputError:
        return []  # what is wrong with the plan is said when it is estimated
    return [Change(path, own)] if own is not None and own is not LEFT_OUT and then != own else []


def _value(told: object, own: object) -> object:
    if isinstance(told, Out):
        return LEFT_OUT
    if isinstance(told, Plus):
        held = list(own) if isinstance(own, list | tuple) else []
        return held if told.item in held else [*held, told.item]
    if isinstance(told, Times):
        if not isinstance(own, int) or (own * told.up) % told.down:
            return None
        return own * told.up // told.down
    return told

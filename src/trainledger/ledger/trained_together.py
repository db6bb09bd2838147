"""Two trained roles in one function: both run forward and backward, then both step, then neither has gradients.

What the function names (logits, the loss) goes when it returns: after each of its calls, a step's last one included.
Source: the row of facts/phases.py whose trained roles run together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from trainledger.ledger.layout_amp import ENDING
from trainledger.lines.moments import CLIP, FORWARD, OPTIMIZER, what_of
from trainledger.lines.stream import Segment

Played = tuple[str, Segment]  # a role and what it runs
Segments = Sequence[Segment]


class Turn(NamedTuple):
    """One call for one role: what the call before it named goes; forward and backward."""

    returned: tuple[Segment, ...]
    micro: tuple[Segment, ...]


class Parted(NamedTuple):
    """A role's step: its calls; its optimizer's step; gradients set to none."""

    turns: tuple[Turn, ...]
    update: tuple[Segment, ...]
    ending: tuple[Segment, ...]


def parted_step(segments: Segments) -> Parted:
    """A trained role's step, whose moments are called `step N: forward` and so on."""
    micros, update, ending = list[list[Segment]](), list[Segment](), list[Segment]()
    before = ""
    for one in segments:
        part = what_of(one.moment)
        if part == ENDING:
            ending.append(one)
        elif part in (CLIP, OPTIMIZER):
            update.append(one)
        elif part == FORWARD and before != FORWARD:
            micros.append([one])
        else:
            micros[-1].append(one)
        before = part
    return Parted(tuple(_turn(one) for one in micros), tuple(update), tuple(ending))


def _turn(micro: list[Segment]) -> Turn:
    first, *rest = micro
    gone = bool(first.events) and all(event < 0 for event in first.events)
    return Turn((first,), tuple(rest)) if gone else Turn((), tuple(micro))


def together(steps: Mapping[str, Parted]) -> Iterator[Played]:
    """A step of these roles, in their order; what the last call of the step before named has gone already."""
    calls = zip_longest(*(one.turns for one in steps.values()), fillvalue=Turn((), ()))
    for number, call in enumerate(calls):
        if number:
            yield from _each(steps, [turn.returned for turn in call])
        yield from _each(steps, [turn.micro for turn in call])
    yield from _each(steps, [one.update for one in steps.values()])
    yield from _each(steps, [one.ending for one in steps.values()])


def returning(steps: Mapping[str, Parted]) -> Iterator[Played]:
    """What the call before these steps named goes."""
    yield from _each(steps, [one.turns[0].returned if one.turns else () for one in steps.values()])


def _each(roles: Mapping[str, Parted], found: Sequence[Segments]) -> Iterator[Played]:
    for role, segments in zip(roles, found, strict=True):
        yield from ((role, one) for one in segments)

"""A micro-batch's pieces in the order in which they run, with what a sharding strategy does around each.

Equal neighbours are written once and counted: a run of layers forward as one, backward as its last, those between, and
its first, for the largest moment of a run is at one of its ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from trainledger.ledger.blocks import Arrived, Walked
from trainledger.lines.moments import BACKWARD, FORWARD, LOSS
from trainledger.lines.stream import Events, Segment


class Hooks:
    """What is born and dies around the pieces of one micro-batch, asked in the order in which they run.

    Pieces count from 0, the embedding, over the layers to the last, the head with its loss.
    """

    def ahead(self, at: int) -> Events:
        """Before the piece runs forward."""
        return ()

    def inside(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """While the piece runs forward: events after so many of its own."""
        return {}

    def passed(self, at: int) -> Events:
        """After the piece ran forward."""
        return ()

    def behind(self, at: int) -> Events:
        """Before the piece runs backward."""
        return ()

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """While the piece runs backward: events after so many of its own."""
        return {}

    def done(self, at: int, arrived: tuple[Arrived, ...]) -> Events:
        """After the piece ran backward, which left these gradients."""
        return ()

    def ended(self) -> Events:
        """After the whole backward."""
        return ()


NONE = Hooks()


@dataclass(frozen=True, slots=True)
class Pieces:
    """A micro-batch walked: the embedding, the layers in order, the head with its loss; the line of the loss's
    gradient, which lives through the whole backward; lines of shared names that die with the first layer that saved
    them, by name; what happens to the model's outputs once its forward has returned. `early`: lines that a caller's
    name lets go of in the next forward, after `bound` of the head's own events. `hidden`: the line of the layers'
    inputs. `left`: after how many of the head's events the model's own forward, and the autocast region around it, had
    returned (0: the loss is made within)."""

    opening: Walked
    layers: tuple[Walked, ...]
    closing: Walked
    arriving: int
    kept: Mapping[str, int]
    outputs: Events = ()
    early: tuple[int, ...] = ()
    bound: int = 0
    hidden: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class Micro:
    """A micro-batch as segments: forward with loss, then backward; and lines of what the caller's names keep until
    the next one's forward is done: the loss, and the logits where the caller keeps the outputs. `products`: after how
    many of a segment's events its first matrix product has returned, by the segment's events. `arrived`: parameters in
    the order in which their gradients are whole. `early`: lines that the next one's forward lets go of before its
    segment number `bound`."""

    forward: tuple[Segment, ...]
    backward: tuple[Segment, ...]
    named: tuple[int, ...]
    products: Mapping[Events, int]
    arrived: tuple[Arrived, ...]
    early: tuple[int, ...] = ()
    bound: int = 0


class Turn(NamedTuple):
    """A piece with what is around it: events, and after how many its first matrix product has returned (0: none)."""

    events: Events
    product: int


def arranged(pieces: Pieces, named: tuple[int, ...], hooks: Hooks) -> Micro:
    """The segments of a micro-batch whose caller keeps the lines `named`."""
    opening, layers, closing = pieces.opening, pieces.layers, pieces.closing
    last, turns = len(layers) + 1, _Turns(hooks)
    ahead = [turns.forward(walked, at) for at, walked in enumerate((opening, *layers))]
    forward = [Segment(FORWARD, turn.events, len(list(group))) for turn, group in groupby(ahead)]
    head = turns.forward(closing, last)
    loose = tuple(event for walked in (opening, *layers, closing) for event in walked.loose)
    bound = len(forward) + 1 if pieces.early else 0
    forward += [Segment(LOSS, events) for events in (*_halves(head, pieces, loose), pieces.outputs)]
    started = turns.backward(closing, last, (pieces.arriving + 1,)) if closing.trains else Turn((), 0)
    behind = [turns.backward(walked, at) for at, walked in reversed(list(enumerate(layers, 1)))]
    runs = _runs(list(zip(behind, reversed(layers), strict=True)), pieces.kept)
    backward = [Segment(f"{BACKWARD} of the loss", started.events), *runs]
    ended = turns.backward(opening, 0)
    last_of_all = (-pieces.arriving - 1,) if closing.trains else ()
    backward.append(Segment(f"{BACKWARD} of the embedding", (*ended.events, *hooks.ended(), *last_of_all)))
    products = {turn.events: turn.product for turn in turns.made() if turn.product}
    arrived = tuple(one for walked in (closing, *reversed(layers), opening) for one in walked.arrived)
    return Micro(tuple(forward), tuple(backward), named, products, arrived, pieces.early, bound)


def _halves(head: Turn, pieces: Pieces, loose: Events) -> tuple[Events, ...]:
    """The head's events up to where the caller's name is bound, or the model's own forward returns, and the rest; all
    of them where neither is. `loose`: deaths at the end of the autocast region, which the caller's loss lies behind."""
    if not pieces.early and not pieces.left:
        return (head.events, loose)
    # what a strategy does around the head stands before its first event and behind its last
    forward = pieces.closing.forward
    ahead = head.events.index(forward[0]) if forward else 0
    at = ahead + (pieces.bound if pieces.early else pieces.left)
    first, rest = head.events[:at], head.events[at:]
    return (first, rest, loose) if pieces.early else (first, loose, rest)


class _Turns:
    """The pieces of a micro-batch with what is around each; equal ones are put together once."""

    __slots__ = ("_made", "hooks")

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self._made: dict[tuple[int, Events, tuple[tuple[int, Events], ...], Events], Turn] = {}

    def made(self) -> Iterable[Turn]:
        """All that differ."""
        return self._made.values()

    def forward(self, walked: Walked, at: int) -> Turn:
        """A piece forward."""
        before, inside = self.hooks.ahead(at), self.hooks.inside(at, walked)
        return self._turn((walked.forward, walked.products[0]), before, inside, self.hooks.passed(at))

    def backward(self, walked: Walked, at: int, first: Events = ()) -> Turn:
        """A piece backward."""
        before, inside = (*self.hooks.behind(at), *first), self.hooks.within(at, walked)
        return self._turn((walked.backward, walked.products[1]), before, inside, self.hooks.done(at, walked.arrived))

    def _turn(self, own: tuple[Events, int], before: Events, inside: Mapping[int, Events], after: Events) -> Turn:
        key = (id(own[0]), before, tuple(inside.items()), after)
        if key not in self._made:
            events, product = _with(*own, inside)
            if before or after:
                events = (*before, *events, *after)
            self._made[key] = Turn(events, product + len(before) if product else 0)
        return self._made[key]


def _with(events: Events, product: int, inside: Mapping[int, Events]) -> tuple[Events, int]:
    """The events with those inside them, and after how many of all its first matrix product has returned (0: none)."""
    if not inside:
        return events, product
    return spliced(events, inside), product + sum(len(inside[at]) for at in inside if at < product)


def spliced(events: Events, inside: Mapping[int, Events]) -> Events:
    """The events with others after so many of them."""
    found: list[int] = []
    start = 0
    for at in sorted(inside):
        found += [*events[start:at], *inside[at]]
        start = at
    return (*found, *events[start:])


def _runs(turns: Sequence[tuple[Turn, Walked]], kept: Mapping[str, int]) -> list[Segment]:
    """The layers' backward, last to first. Of `kept` names (lines), each dies with the first layer that saved it."""
    segments: list[Segment] = []
    left = [walked for _, walked in turns]
    top = len(turns) - 1
    for (turn, walked), group in groupby(turns, key=lambda one: (one[0], one[1])):
        count = len(list(group))
        left = left[count:]
        earlier = frozenset().union(*(one.outside for one in left))
        low = top - count + 1
        segments.append(Segment(f"{BACKWARD} of layer {top}", turn.events))
        between = top - low - 1
        if between > 0:
            name = f"{BACKWARD} of layers {top - 1} to {low + 1}" if between > 1 else f"{BACKWARD} of layer {top - 1}"
            segments.append(Segment(name, turn.events, between))
        if low < top:
            segments.append(Segment(f"{BACKWARD} of layer {low}", turn.events))
        done = tuple(-line - 1 for name, line in kept.items() if name in walked.outside - earlier)
        segments.append(Segment(f"{BACKWARD} of layer {low}", done))
        top = low - 1
    return segments

"""Megatron-FSDP: when weights are gathered, and how long gradients wait before they are reduced.

Weights lie in buckets, in the order in which modules are registered: those outside of layers first, then each layer's
dense ones and its experts'. A hook before a layer gathers its buckets and further ones, forward those after it, in
backward those before it, until enough elements are ahead; they go as the layer ends. So do hooks before the embedding,
the last norm and the output layer, whose own stay: as the last norm begins, the first layers are gathered again. From
some release on that is so before the first backward only. A bucket's gradients are there from its layer's backward
until more elements wait than may, or the backward ends.
Source: the rows of facts/megatron_ahead.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from trainledger.ledger.mega_passes import Pass
from trainledger.ledger.mega_run import Chunk
from trainledger.lines.stream import Events, Segment

FORWARD, BACKWARD, NONE = 1, -1, 0


class Group(NamedTuple):
    """Buckets that are gathered and reduced together: elements, lines of the whole weights and of their gradients (none
    of what is not sharded), and the unit they belong to (None: they lie outside of layers)."""

    size: int
    weights: tuple[int, ...]
    gradients: tuple[int, ...]
    unit: int | None


@dataclass(frozen=True, slots=True)
class Buckets:
    """A chunk's groups in order; which of them are each layer's, and those that modules outside of layers ask for
    before and after them."""

    groups: tuple[Group, ...]
    layers: Mapping[int, tuple[int, ...]]
    opening: tuple[int, ...]
    closing: tuple[int, ...]

    @property
    def root(self) -> tuple[int, ...]:
        """Groups outside of layers."""
        return tuple(at for at, one in enumerate(self.groups) if one.unit is None)


class How(NamedTuple):
    """How many elements are gathered ahead; how many may wait to be reduced; of how many units weights and gradients
    are there at most (0: any); whether hooks outside of layers gather ahead; whether their own are there before."""

    reach: int
    waiting: int
    units: int
    roots: bool
    there: bool


class Whole:
    """Which groups are whole, as hooks ask for them one after the other; those `there` are from the start."""

    __slots__ = ("groups", "how", "loose", "queue", "there")

    def __init__(self, groups: Sequence[Group], how: How, there: Iterable[int] = ()) -> None:
        self.groups, self.how, self.there = groups, how, set(there)
        self.loose: set[int] = set()  # let go of as the next one is gathered
        self.queue: list[int] = []  # whose gradients wait

    def ask(self, own: Sequence[int], way: int) -> Events:
        """A hook that needs these groups: what it lets go of, and what it gathers."""
        self.loose -= set(own)
        wanted = {*own, *(self._ahead(own, way) if way else ())}
        missing = sorted(wanted - self.there)
        if not missing:
            return ()
        gone = sorted(self.loose & self.there)
        self.there.difference_update(gone)
        self.loose.clear()
        self.there.update(missing)
        return (*self._deaths(gone), *(line + 1 for at in missing for line in self.groups[at].weights))

    def _ahead(self, own: Sequence[int], way: int) -> list[int]:
        found, size, at = list[int](), 0, (own[-1] if way == FORWARD else own[0]) + way
        units = {self.groups[one].unit for one in own}
        if self.how.units and units == {None}:
            return []
        while 0 <= at < len(self.groups) and size < self.how.reach:
            units.add(self.groups[at].unit)
            if self.how.units and len(units) > self.how.units:
                break
            found.append(at)
            size += self.groups[at].size
            at += way
        return found

    def let_go(self, own: Iterable[int]) -> Events:
        """The end of what needed these groups."""
        gone = [at for at in own if at in self.there]
        self.there.difference_update(gone)
        return self._deaths(gone)

    def loosened(self) -> None:
        """The start of a backward: what layers have may go."""
        self.loose = {at for at in self.there if self.groups[at].unit is not None}

    def waits(self, own: Sequence[int]) -> Events:
        """Gradients of these groups wait to be reduced: those that go before."""
        gone: list[int] = []
        for at in reversed(own):
            while self.queue and not self._may_wait(at):
                gone.append(self.queue.pop(0))
            self.queue.append(at)
        return self._slopes(gone)

    def _may_wait(self, more: int) -> bool:
        few = not self.how.units or len({self.groups[at].unit for at in (*self.queue, more)}) <= self.how.units
        return few and sum(self.groups[at].size for at in self.queue) <= self.how.waiting

    def reduced(self) -> Events:
        """The end of a backward: no gradients wait."""
        gone, self.queue = self.queue, []
        return self._slopes(gone)

    def _slopes(self, gone: Iterable[int]) -> Events:
        return tuple(-line - 1 for at in gone for line in reversed(self.groups[at].gradients))

    def _deaths(self, gone: Iterable[int]) -> Events:
        return tuple(-line - 1 for at in gone for line in reversed(self.groups[at].weights))


Both = tuple[tuple[Segment, ...], tuple[Segment, ...]]  # forward and backward


class _Around:
    """The segments of a pass, each with what is gathered before and let go of after it."""

    def __init__(self, made: Pass, chunk: Chunk, buckets: Buckets) -> None:
        self.made, self.chunk, self.buckets = made, chunk, buckets
        self.products = dict(made.products)
        self.ends = int(chunk.first), int(chunk.closes)

    def passed(self, both: Both, whole: Whole) -> Both:
        """Forward and backward."""
        return self._forward(both[0], whole), self._backward(both[1], whole)

    def _forward(self, segments: Sequence[Segment], whole: Whole) -> tuple[Segment, ...]:
        moment, (first, last), found = segments[0].moment, self.ends, list[Segment]()
        way = FORWARD if whole.how.roots else NONE
        for at in self.buckets.opening:
            found.append(Segment(moment, whole.ask([at], way)))
        found += segments[:first]
        for part, layers in self._pieces(segments[first : len(segments) - last], self.chunk.layers):
            if not layers:  # a chunk without any hands on what it received
                found.append(part)
                continue
            found.append(self._put(part, whole.ask(self.buckets.layers[layers[0]], FORWARD), self._over(layers, whole)))
        for at in self.buckets.closing:
            found.append(Segment(moment, whole.ask([at], way)))
        return _joined([*found, *segments[len(segments) - last :]])

    def _over(self, layers: Sequence[int], whole: Whole) -> Events:
        """The end of layers that are walked as one: the others were asked for as the ones before them went."""
        own = self.buckets.layers
        events = whole.let_go(own[layers[0]])
        for layer in layers[1:]:
            events += whole.ask(own[layer], FORWARD) + whole.let_go(own[layer])
        return events

    def _backward(self, segments: Sequence[Segment], whole: Whole) -> tuple[Segment, ...]:
        moment, (last, first), own = segments[0].moment, self.ends, self.buckets.layers
        root = [line for at in self.buckets.root for line in self.buckets.groups[at].gradients]
        found = [*segments[:first], Segment(moment, tuple(line + 1 for line in root))]  # as the first comes
        whole.loosened()
        for part, layers in self._pieces(segments[first : len(segments) - last], self.chunk.layers[::-1]):
            ahead = tuple(event for layer in layers for event in self._begun(own[layer], whole))
            behind = tuple(e for layer in layers for e in (*whole.let_go(own[layer]), *whole.waits(own[layer])))
            found.append(self._put(part, ahead, behind))
        gone = (*whole.reduced(), *(-line - 1 for line in reversed(root)))
        return _joined([*found, *segments[len(segments) - last :], Segment(moment, gone)])

    def _begun(self, own: Sequence[int], whole: Whole) -> Events:
        come = whole.ask(own, BACKWARD)
        return (*come, *(line + 1 for at in own for line in self.buckets.groups[at].gradients))

    def _pieces(self, segments: Sequence[Segment], layers: Sequence[int]) -> list[tuple[Segment, Sequence[int]]]:
        """Every piece by itself, with the layers that it is of."""
        singles = [one._replace(repeat=1) for one in segments for _ in range(one.repeat)]
        per = len(layers) // max(len(singles), 1)
        return [(one, layers[at * per : (at + 1) * per]) for at, one in enumerate(singles)]

    def _put(self, part: Segment, ahead: Events, behind: Events) -> Segment:
        events = (*ahead, *part.events, *behind)
        if part.events in self.made.products:
            self.products[events] = self.made.products[part.events] + len(ahead)
        return part._replace(events=events)


def _joined(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Equal ones in a row as one that is repeated; none without events."""
    kept = (one for one in segments if one.events)
    return tuple(
        Segment(moment, events, sum(one.repeat for one in same))
        for (moment, events), same in groupby(kept, key=lambda one: (one.moment, one.events))
    )


def by_bucket(made: Pass, chunk: Chunk, buckets: Buckets, how: How) -> Pass:
    """A pass with what is gathered while it runs, and with gradients that wait."""
    around = _Around(made, chunk, buckets)

    def begun() -> Whole:
        return Whole(buckets.groups, how, buckets.root if how.there else ())

    first = around.passed((made.forward, made.backward), begun())
    later = around.passed(made.after, begun())
    return replace(made, forward=first[0], backward=first[1], products=around.products, after=later)

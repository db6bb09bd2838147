"""The passes of a pipeline's stage backward: whole ones, and those of inputs and of weights.

Gradients that a weights' pass makes stay in the dtype of weights until the stage's next pass through its layers, which
adds them to those that wait in the dtype of reductions.
Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, post_backward; torch/distributed/pipelining/
_backward.py, stage_backward_weight (v2.6 to v2.13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from trainledger.ledger.arrange import Pieces, arranged, spliced
from trainledger.ledger.blocks import Arrived, Walked
from trainledger.ledger.fsdp2 import Kept
from trainledger.ledger.fsdp2_lines import UnitLines
from trainledger.ledger.pipelined_steps import Ended
from trainledger.ledger.units import ROOT_KEY, Key, Units
from trainledger.ledger.waiting import Waiting
from trainledger.lines.actions import Kind
from trainledger.lines.moments import BACKWARD
from trainledger.lines.stream import Events, Segment
from trainledger.model.program import Weight

Segments = tuple[Segment, ...]
WEIGHTS = "backward of weights"


class Left(NamedTuple):
    """Which gradients a stage's pass finds: made by weights' passes since the last one through its layers, and waiting
    in the dtype of reductions."""

    late: bool
    waiting: bool


class Walks(NamedTuple):
    """A stage's pieces with their whole backward, and with each half of it; lines that the caller's names keep; that of
    gradients of hidden states."""

    both: Pieces
    inputs: Pieces
    weights: Pieces
    names: tuple[int, ...]
    slope: int


class Passes:
    """A stage's passes, each worked out once for what it finds. `stays`: what the last reduction sent is there until
    the next step's first."""

    def __init__(self, units: Units, lines: UnitLines, walks: Walks, stays: bool) -> None:
        self.units, self.lines, self.walks, self.stays = units, lines, walks, stays
        self.products: dict[Events, int] = {}
        self._made: dict[tuple[Kind, Left], tuple[Segments, Left]] = {}
        self._gradients: dict[Key, list[tuple[Weight, int]]] = {}
        for at, walked in enumerate((walks.both.opening, *self._pieces(walks.weights))):
            for one in walked.arrived:
                self._gradients.setdefault(units.key(at, one.weight), []).append((one.weight, one.line))

    def of(self, kind: Kind, left: Left) -> tuple[Segments, Left]:
        """The segments of a pass, and what it leaves."""
        if (kind, left) not in self._made:
            self._made[kind, left] = self._weights(left) if kind is Kind.WEIGHT else self._through(kind, left)
        return self._made[kind, left]

    def ended(self, left: Left) -> Ended:
        """After the stage's last pass: every unit's gradients are added up and reduced."""
        return self._hooks(left).last(self.stays)

    @property
    def captured(self) -> bool:
        """Whether the gradient that arrives is held for a weight of the last layer: but for it, the layer leaves as
        many gradients of hidden states as it finds."""
        top, slope = self.walks.inputs.layers[-1].backward, self.walks.slope
        return top.count(slope + 1) > top.count(-slope - 1)

    @property
    def _wide(self) -> bool:
        """Whether gradients wait in another dtype than the one in which they are made."""
        return self.lines.how.reduce != self.lines.how.compute

    def _pieces(self, pieces: Pieces) -> tuple[Walked, ...]:
        return (*pieces.layers, pieces.closing)

    def _hooks(self, left: Left) -> Waiting:
        """The micro-batch's hooks: all is gathered, and these gradients are there."""
        kept = Kept()
        kept.open = {ROOT_KEY, *(key for at in self.units.own for key in self.units.keys(at))}
        for key, found in self._gradients.items():
            if left.late:
                kept.late[key] = list(found)
            if left.waiting:
                kept.waiting[key] = [(one, self.lines.unreduced(one) if self._wide else line) for one, line in found]
        return Waiting(self.units, self.lines, kept, (True, False))

    def _through(self, kind: Kind, left: Left) -> tuple[Segments, Left]:
        """A pass through the layers: of inputs alone, or the whole backward."""
        hooks, inputs = self._hooks(left), kind is Kind.INPUT
        made = arranged(self.walks.inputs if inputs else self.walks.both, self.walks.names, hooks)
        self.products |= made.products
        after = (Segment(BACKWARD, self._loose()),) if inputs else ()
        return (*made.backward, *after), Left(False, bool(hooks.kept.waiting))

    def _loose(self) -> Events:
        """What goes as the graph's end does: of the last piece, behind which no weight stands."""
        pieces = self.walks.inputs
        last = pieces.closing if pieces.closing.trains else pieces.layers[-1]
        return last.loose

    def _weights(self, left: Left) -> tuple[Segments, Left]:
        """Weights' gradients, piece by piece as the module lists them; then all that the graph still held."""
        pieces, adds = self._pieces(self.walks.weights), left.late if self._wide else left.waiting
        own = [_added(one.backward, one.arrived) if adds else one.backward for one in pieces]
        gone = Counter(self._loose())
        rest = [_without(one.loose, gone) for one in reversed(pieces)]
        found = (*_runs(own), *_runs(rest))
        return found, Left(True, left.waiting) if self._wide else Left(False, True)


def _runs(each: Sequence[Events]) -> Segments:
    """Equal neighbours together."""
    return tuple(Segment(WEIGHTS, events, len(list(group))) for events, group in groupby(each) if events)


def _added(events: Events, arrived: tuple[Arrived, ...]) -> Events:
    """The events where gradients are added to older ones: each goes once the next one is there."""
    ends = [*(one.at for one in arrived), len(events)][1:]
    inside: dict[int, Events] = {}
    for one, at in zip(arrived, ends, strict=True):
        inside[at] = (*inside.get(at, ()), -one.line - 1)
    return spliced(events, inside)


def _without(events: Events, gone: Counter[int]) -> Events:
    """The events but for those that are gone already."""
    found = []
    for event in events:
        if gone[event]:
            gone[event] -= 1
        else:
            found.append(event)
    return tuple(found)

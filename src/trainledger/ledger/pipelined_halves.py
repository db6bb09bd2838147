"""A step of a pipeline's rank whose schedule splits backwards: gradients of inputs in one action, weights' in another.

The model's first stage has no input to make a gradient of: its first half does nothing, and its whole backward runs in
the second. Between the halves a stage keeps its output, the gradient that arrived, and the graph; the gradient of its
input stays until the next step. A stage that follows another on its rank reads that one's output itself, and hands it
its gradient.
Source: torch/distributed/pipelining/stage.py, backward_one_chunk, backward_weight_one_chunk, set_local_fwd_input,
set_local_bwd_input (v2.6 to v2.13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainledger.ledger.arrange import Micro
from trainledger.ledger.passes import Left, Passes, Segments
from trainledger.ledger.pipelined_steps import Edges, Stage
from trainledger.lines.actions import Action, Kind
from trainledger.lines.moments import BACKWARD, FORWARD
from trainledger.lines.stream import Events, Segment
from trainledger.plan.stages import Chunk


@dataclass(frozen=True, slots=True)
class Halved:
    """One of a rank's chunks: its passes forward and backward, and whether it follows another chunk on its rank
    (`behind`), or another follows it (`ahead`)."""

    stage: Stage
    passes: Passes
    behind: bool
    ahead: bool

    @property
    def chunk(self) -> Chunk:
        """The chunk."""
        return self.stage.chunk

    def real(self, kind: Kind) -> Kind | None:
        """What an action is: the model's first stage runs its whole backward in the second half."""
        if not self.chunk.embedding:
            return kind
        return {Kind.INPUT: None, Kind.WEIGHT: Kind.BACKWARD}.get(kind, kind)


def splits(order: Sequence[Action]) -> bool:
    """Whether a schedule splits a backward."""
    return any(one.kind is Kind.INPUT for one in order)


def neighbours(chunk: Chunk, chunks: Sequence[Chunk]) -> tuple[bool, bool]:
    """Whether a chunk follows another on its rank, and whether another follows it."""
    behind = any(one.first + one.layers == chunk.first for one in chunks if one is not chunk)
    return behind, any(chunk.first + chunk.layers == one.first for one in chunks if one is not chunk)


def halved_step(order: Sequence[Action], made: tuple[Halved, ...], edges: Edges, buffers: Events | None) -> Micro:
    """The segments of one step; `buffers`: what the first one makes (None: a later one)."""
    stays, found = Counter[int](), dict.fromkeys(range(len(made)), Left(False, False))
    forward, backward = [Segment(FORWARD, buffers or ())], list[Segment]()
    last = {one.chunk: at for at, one in enumerate(order)}
    for at, action in enumerate(order):
        one = made[action.chunk]
        kind = one.real(action.kind)
        if kind is Kind.FORWARD:
            (backward if backward else forward).extend(_forward(one, action, edges))
        elif kind is not None:
            segments, found[action.chunk] = one.passes.of(kind, found[action.chunk])
            backward.append(Segment(BACKWARD, _entered(one, kind, edges)))
            backward += segments
            backward.append(Segment(BACKWARD, _left(one, kind, edges)))
            stays.update(_kept(one, kind, edges))
        if at == last[action.chunk]:
            ended = one.passes.ended(found[action.chunk])
            backward.append(Segment(BACKWARD, ended.later if buffers is None else ended.first))
    if edges.merged is not None and any(one.chunk.loss for one in made):
        backward.append(Segment(BACKWARD, (edges.merged + 1, -edges.merged - 1)))
    if buffers is None:  # the step before left as much
        forward.insert(0, Segment(FORWARD, tuple(-line - 1 for line in stays.elements())))
    products = {events: at for one in made for events, at in _products(one)}
    return Micro(tuple(forward), tuple(backward), (), products, ())


def _products(one: Halved) -> list[tuple[Events, int]]:
    walked = (one.stage.first.products, one.stage.later.products, one.passes.products)
    return [item for products in walked for item in products.items()]


def _forward(one: Halved, action: Action, edges: Edges) -> Segments:
    """A micro-batch forward. What the chunk before has made on this rank takes the place of a buffer."""
    received: Events = () if one.chunk.embedding else (-edges.received - 1,)
    if received and not one.behind:
        received = (*received, edges.hidden + 1)
    entered = (*received, edges.logits + 1) if one.chunk.loss else received
    ran = (segment._replace(moment=FORWARD) for segment in one.stage.of(action).forward)
    return (Segment(FORWARD, entered), *ran)


def _entered(one: Halved, kind: Kind, edges: Edges) -> Events:
    """Before a pass backward: the gradient is there, in its buffer; what lets go of the input leaves the output that it
    is of the chunk before."""
    handed = one.chunk.loss or one.ahead or kind is Kind.WEIGHT
    arrived: Events = () if handed else (-edges.arrived - 1, edges.slope + 1)
    return (*arrived, edges.hidden + 1) if one.behind and kind is not Kind.INPUT else arrived


def _left(one: Halved, kind: Kind, edges: Edges) -> Events:
    """After a pass backward: buffers are buffers again, unless the gradient in one is held for a weight; the output
    goes with the graph, the logits once inputs have their gradients."""
    found: list[int] = []
    whole, first, last = kind is Kind.BACKWARD, kind is Kind.INPUT, kind is Kind.WEIGHT
    if one.chunk.loss:
        found += [-edges.logits - 1] * (edges.merged is None and not last)
        found += [-line - 1 for line in one.stage.first.named] * (not first)
    else:
        found += [edges.arrived + 1] * (whole or one.passes.captured is last)
        found += [-edges.hidden - 1] * (not first and (one.ahead or not edges.stays[0]))
        found += [edges.received + 1] * (not first and one.ahead)
    if not one.chunk.embedding:
        found += [edges.received + 1] * (not first and not one.behind)
        found += [-edges.arrived - 1] * (one.behind and not last)  # the chunk before has the gradient itself
        found += [-edges.slope - 1] * (whole and not one.behind and not edges.stays[1])
    return tuple(found)


def _kept(one: Halved, kind: Kind, edges: Edges) -> tuple[int, ...]:
    """Lines that a pass leaves to the next step."""
    first, found = kind is Kind.INPUT, list[int]()
    if one.chunk.loss:
        found += [edges.logits] * (edges.merged is not None and not first)
    else:
        found += [edges.hidden] * (edges.stays[0] and not one.ahead and not first)
    slope = first or (kind is Kind.BACKWARD and edges.stays[1])
    return (*found, *[edges.slope] * (slope and not one.chunk.embedding and not one.behind))

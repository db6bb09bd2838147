"""One step of a pipeline's rank as segments: its stages' micro-batches in the order of the schedule, and what passes
between them.

Sources: torch/distributed/pipelining/stage.py, forward_one_chunk, backward_one_chunk; schedules.py, _merge_outputs
(v2.5 to v2.13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainledger.ledger.arrange import Micro
from trainledger.lines.actions import Action, Kind
from trainledger.lines.moments import BACKWARD, FORWARD
from trainledger.lines.stream import Events, Segment
from trainledger.plan.stages import Chunk


class Ended(NamedTuple):
    """What follows a stage's last backward in the first step, and in later ones."""

    first: Events
    later: Events


@dataclass(frozen=True, slots=True)
class Stage:
    """One of a rank's chunks and what passes through it: a step's first micro-batch, which gathers the weights, the
    others, and what follows the last."""

    chunk: Chunk
    first: Micro
    later: Micro
    ended: Ended

    def of(self, action: Action) -> Micro:
        """The micro-batch of an action."""
        return self.later if action.micro_batch else self.first


class Edges(NamedTuple):
    """Lines of hidden states and their gradients, of the buffers that these are received in, of a micro-batch's logits,
    and of all of them, where the step returns these. `plain`: nothing is received in buffers that stay, outputs are let
    go of once they are sent, and logits are the loss's own. `stays`: outputs, and gradients of inputs, are there until
    the next step."""

    hidden: int
    slope: int
    received: int
    arrived: int
    logits: int
    merged: int | None
    plain: bool
    stays: tuple[bool, bool]


def step_of(order: Sequence[Action], made: tuple[Stage, ...], edges: Edges, buffers: Events | None) -> Micro:
    """The segments of one step; `buffers`: what the first one makes (None: a later one)."""
    left = Counter[int]()
    forward, backward = [Segment(FORWARD, buffers or ())], list[Segment]()
    last = {one.chunk: one.micro_batch for one in order}
    for action in order:
        if action.kind is Kind.WEIGHT:  # counted with the other half
            continue
        stage = made[action.chunk]
        chunk, micro = stage.chunk, stage.of(action)
        if action.kind is Kind.FORWARD:
            found = backward if backward else forward
            found.append(Segment(FORWARD, _entered(chunk, edges)))
            found += [one._replace(moment=FORWARD) for one in micro.forward]
            found.append(Segment(FORWARD, (-edges.hidden - 1,) * (edges.plain and not chunk.loss)))
            continue
        arrived = (edges.slope + 1,) if edges.plain else (-edges.arrived - 1, edges.slope + 1)
        backward.append(Segment(BACKWARD, () if chunk.loss else arrived))
        backward += micro.backward
        ended = stage.ended.later if buffers is None else stage.ended.first
        whole = ended if action.micro_batch == last[action.chunk] else ()
        backward.append(Segment(BACKWARD, (*_left(chunk, micro, edges), *whole)))
        left.update(kept_of(chunk, edges))
    if edges.merged is not None and any(one.chunk.loss for one in made):
        backward.append(Segment(BACKWARD, (edges.merged + 1, -edges.merged - 1)))
    if buffers is None:  # the step before left as much
        forward.insert(0, Segment(FORWARD, tuple(-line - 1 for line in left.elements())))
    products = {events: at for one in made for micro in (one.first, one.later) for events, at in micro.products.items()}
    return Micro(tuple(forward), tuple(backward), (), products, ())


def kept_of(chunk: Chunk, edges: Edges) -> tuple[int, ...]:
    """Lines that a micro-batch leaves to the next step."""
    outputs, slopes = edges.stays
    merged = (edges.logits,) * (edges.merged is not None)
    out = merged if chunk.loss else (edges.hidden,) * outputs
    return out if chunk.embedding else (*out, *(edges.slope,) * slopes)


def _entered(chunk: Chunk, edges: Edges) -> Events:
    """What is received is the stage's input; the last stage's logits will be kept."""
    if edges.plain:
        return () if chunk.embedding else (edges.hidden + 1,)
    received = () if chunk.embedding else (-edges.received - 1, edges.hidden + 1)
    return (*received, edges.logits + 1) if chunk.loss else received


def _left(chunk: Chunk, micro: Micro, edges: Edges) -> Events:
    """After a backward: the output or what names the loss is let go, the input's gradient is sent, but what stays."""
    out: Events
    if edges.plain:
        out = tuple(-line - 1 for line in micro.named) if chunk.loss else ()
        return out if chunk.embedding else (*out, -edges.slope - 1)
    if chunk.loss:
        names = (*micro.named, *((edges.logits,) if edges.merged is None else ()))
        out = tuple(-line - 1 for line in names)
    else:
        out = (*(-edges.hidden - 1,) * (not edges.stays[0]), edges.arrived + 1)
    return out if chunk.embedding else (*out, *(-edges.slope - 1,) * (not edges.stays[1]), edges.received + 1)

"""Evaluation over torch.distributed.pipelining: the schedule's forwards alone.

A stage holds the inputs and the outputs of every micro-batch until its next step begins, with or without backwards:
of the last stage these are the logits. Weights stay gathered from the first forward on, and nothing gives them back
until training has run backward again.
Source: torch/distributed/pipelining/stage.py, forward_one_chunk, clear_runtime_states; schedules.py, eval (2.13);
torchtitan/components/validate.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainledger.ledger.beyond import evaluating
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import walk
from trainledger.ledger.opening import Job
from trainledger.ledger.pipelined import Pipelined, Rank
from trainledger.ledger.pipelined_steps import Edges, Stage, kept_of
from trainledger.lines.line import Account, Line
from trainledger.lines.moments import EVALUATION, FORWARD, in_part
from trainledger.lines.stream import Segment, net
from trainledger.plan.beyond import Evaluation

MOMENT = in_part(EVALUATION, FORWARD)


def evaluation(layout: Pipelined, how: Evaluation) -> list[Segment]:
    """An evaluation after the steps."""
    trained, lines = layout.stages.whole, layout.job.book.lines
    edges = layout.edges(walk(trained, Leaves(True, trained.run.gradients, {}))[0])
    whole = evaluating(trained, how.micro_batch or layout.job.run.setting.batch, how.sequence)
    own = Pipelined(_at(layout.stages, whole), layout.how, layout.updates)
    pieces, named = walk(whole, Leaves(True, whole.run.gradients, {}))
    mine = own.edges(pieces)
    stages = own.stages
    made = [own.stage(*one, (pieces, named)) for one in zip(stages.chunks, stages.units, strict=True)]
    found = [Segment(MOMENT, events) for events in _begun(layout, edges, mine)]
    found += [one for at in range(own.count) for stage in made for one in _forward(stage, mine, at, lines)]
    if mine.merged is not None and any(stage.chunk.loss for stage in made):
        found.append(Segment(MOMENT, (mine.merged + 1, -mine.merged - 1)))
    return [one for one in found if one.events]


def _at(rank: Rank, whole: Job) -> Rank:
    """The rank, of a job that evaluates."""
    job = replace(rank.job, run=whole.run, trained=whole.trained)
    return rank._replace(job=job, whole=whole)


def _begun(layout: Pipelined, edges: Edges, mine: Edges) -> Iterator[tuple[int, ...]]:
    """What the last step left is gone; buffers of another size take the place of the stages' own."""
    chunks, count = layout.stages.chunks, layout.count
    yield tuple(-line - 1 for chunk in chunks for line in kept_of(chunk, edges) * count)
    before = sum(not one.embedding for one in chunks) * count
    if mine.received != edges.received:
        yield (-edges.received - 1,) * before
        yield (mine.received + 1,) * before


def _forward(stage: Stage, edges: Edges, at: int, lines: Sequence[Line]) -> Iterator[Segment]:
    """One micro-batch through a stage: its input stays in the buffer that it was received in, its output in the
    stage's cache, until the next step."""
    chunk, micro = stage.chunk, stage.later if at else stage.first
    segments = [one._replace(moment=MOMENT) for one in micro.forward]
    if not chunk.embedding:
        entered = Segment(MOMENT, (-edges.received - 1, edges.hidden + 1))
        segments = [entered, *_buffered(segments, edges)]
    yield from _settled(segments, Counter({edges.hidden: int(not chunk.loss)}), lines)
    yield Segment(MOMENT, (edges.logits + 1,) * chunk.loss)


def _buffered(segments: Sequence[Segment], edges: Edges) -> Iterator[Segment]:
    """The first layer's input is the buffer's again once the layer lets go of it."""
    gone, done = -edges.hidden - 1, False
    for one in segments:
        if done or gone not in one.events:
            yield one
            continue
        done, at = True, one.events.index(gone) + 1
        yield one._replace(events=(*one.events[:at], edges.received + 1, *one.events[at:]), repeat=1)
        if one.repeat > 1:
            yield one._replace(repeat=one.repeat - 1)


def _settled(segments: Sequence[Segment], stays: Counter[int], lines: Sequence[Line]) -> list[Segment]:
    """The segments after which these lines stay, and gathered weights, and no others: what the first stage would hold
    for the last, which lets go of it, dies with the first one's forward."""
    left = net(segments)
    left.subtract(stays)
    left = Counter({line: count for line, count in left.items() if lines[line].account is not Account.GATHERED})
    found = list(segments)
    for at in range(len(found) - 1, -1, -1):
        events = list(found[at].events)
        for place in range(len(events) - 1, -1, -1):
            if events[place] < 0 and found[at].repeat == 1 and left[-events[place] - 1] < 0:
                left[-events.pop(place) - 1] += 1
        found[at] = found[at]._replace(events=tuple(events))
    return [*found, Segment(MOMENT, tuple(-line - 1 for line in left.elements()))]

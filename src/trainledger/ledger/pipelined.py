"""FSDP2 under torch.distributed.pipelining: a rank's stages, walked, in the order of the schedule.

A stage's buffers for what it receives stand for every micro-batch from its first step on. Its outputs live until their
backward, the last stage's until the next step, before which they are merged into one tensor for who called it. Older
releases keep all outputs, and the gradients of all inputs, until the next step, and what the last reduction sent until
the next one. Weights stay gathered from a step's first forward, and gradients whole, in the dtype of reductions, until
the stage's last backward, after which all its units are reduced.
Sources: torch/distributed/pipelining/stage.py, _prepare_forward_infra, forward_one_chunk, backward_one_chunk,
backward_maybe_with_nosync; schedules.py, _merge_outputs (v2.5 to v2.13); torchtitan, apply_fsdp (2024-05 to 2026-04).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from trainledger.base.dims import Axis, Dim
from trainledger.facts.code_read import AUTOGRAD, STAGES
from trainledger.facts.dtypes import FP32
from trainledger.facts.megatron import SETTLED
from trainledger.facts.pipelining import Keeps, keeps
from trainledger.facts.pithtrain import NAME as PITHTRAIN
from trainledger.facts.torchtitan import NAME, Change, holds
from trainledger.ledger.arrange import Micro, Pieces, arranged
from trainledger.ledger.blocks import Walked
from trainledger.ledger.fsdp2 import Kept
from trainledger.ledger.fsdp2_how import How
from trainledger.ledger.halves import Half
from trainledger.ledger.layout import Copies, Schedule
from trainledger.ledger.layout_fsdp2 import Sharded
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import walk
from trainledger.ledger.opening import Job
from trainledger.ledger.passes import Passes, Walks
from trainledger.ledger.pipelined_halves import Halved, halved_step, neighbours, splits
from trainledger.ledger.pipelined_steps import Edges, Stage, step_of
from trainledger.ledger.units import Units
from trainledger.ledger.waiting import Waiting
from trainledger.lines.actions import Action
from trainledger.lines.line import Account
from trainledger.lines.pipeline import pipeline_of
from trainledger.lines.schedules import actions
from trainledger.lines.stream import Events
from trainledger.model.program import Model
from trainledger.plan.schema import Plan
from trainledger.plan.stages import Chunk, split_of, stages

if TYPE_CHECKING:
    from trainledger.ledger.step import Updates

EMPTY = Walked((), (), (), frozenset(), frozenset(), False, False, (0, 0))


def chunks_at(plan: Plan, model: Model, at: int) -> tuple[Chunk, ...]:
    """The chunks of one pipeline rank."""
    layers = sum(block.count for block in model.blocks)
    return tuple(one for one in stages(split_of(plan, layers)) if one.rank == at)


def part_of(model: Model, chunks: tuple[Chunk, ...]) -> Model:
    """The model of these chunks."""
    kept = {layer for one in chunks for layer in range(one.first, one.first + one.layers)}
    blocks = (replace(block, layers=tuple(at for at in block.layers if at in kept)) for block in model.blocks)
    words, loss = any(one.embedding for one in chunks), any(one.loss for one in chunks)
    return replace(
        model,
        embeddings=model.embeddings if words else (),
        blocks=tuple(block for block in blocks if block.layers),
        head=model.head if loss else replace(model.head, ops=(), weights=()),
    )


def renumbered(model: Model) -> Model:
    """The layers of a stage, counted from 0."""
    places = {at: number for number, at in enumerate(sorted(at for block in model.blocks for at in block.layers))}
    return replace(
        model, blocks=tuple(replace(one, layers=tuple(places[at] for at in one.layers)) for one in model.blocks)
    )


class Rank(NamedTuple):
    """A rank's part of the model as a job, that of all stages, its chunks, the units of each, and its actions."""

    job: Job
    whole: Job
    chunks: tuple[Chunk, ...]
    units: tuple[Units, ...]
    order: tuple[Action, ...]


def rank_at(plan: Plan, whole: Job, at: int, units: Callable[[Model], Units]) -> Rank:
    """A pipeline rank; `units` makes a stage's."""
    chunks = chunks_at(plan, whole.model, at)
    job = replace(whole, model=part_of(whole.model, chunks))
    each = tuple(_filled(units(renumbered(part_of(whole.model, (one,))))) for one in chunks)
    pipeline = pipeline_of(plan)
    if plan.stack.framework == PITHTRAIN:  # once it repeats itself, every further micro-batch is as the one before
        most = SETTLED.rounds * pipeline.ranks * pipeline.chunks
        pipeline = replace(pipeline, micro_batches=min(pipeline.micro_batches, most))
    return Rank(job, whole, chunks, each, actions(pipeline, at))


def _filled(units: Units) -> Units:
    """The units that hold a weight: a stage without the model's ends has none for these."""
    return replace(units, own={at: tuple(one for one in row if one.members) for at, row in units.own.items()})


class Pipelined(Sharded):
    """One rank of a pipeline."""

    def __init__(self, rank: Rank, how: How, updates: Updates) -> None:
        super().__init__(rank.job, Schedule(1, False, False), rank.units[0], how, updates)
        self.stages = rank
        self.count = 1 + max(one.micro_batch for one in rank.order)
        self.walked = None

    def gradients(self) -> Copies:
        """One tensor of each unit's reduced gradients, stage by stage."""
        found: Copies = []
        for units in self.stages.units:
            self.units = units
            found += super().gradients()
        return found

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """A step as one micro-batch: forwards up to the first backward, and all that follows."""
        pieces, named = walk(self.stages.whole, leaves)
        edges, rank = self.edges(pieces), self.stages
        made = tuple(self.stage(*one, (pieces, named)) for one in zip(rank.chunks, rank.units, strict=True))
        if not edges.plain and splits(rank.order):
            return self._halved(made, edges, leaves, (pieces, named))
        first = step_of(rank.order, made, edges, self._buffers(edges))
        later = step_of(rank.order, made, edges, None)
        return lambda again: (later if again else first,)

    def _halved(
        self, made: tuple[Stage, ...], edges: Edges, leaves: Leaves, walked: tuple[Pieces, tuple[int, ...]]
    ) -> Callable[[bool], tuple[Micro, ...]]:
        """The same where the schedule splits backwards."""
        rank, stays = self.stages, self._keeps(Keeps.REDUCED)
        halves = [walk(replace(rank.whole, half=half), leaves)[0] for half in (Half.INPUTS, Half.WEIGHTS)]
        stages = []
        for stage, units in zip(made, rank.units, strict=True):
            both, inputs, weights = (_own(one, stage.chunk) for one in (walked[0], *halves))
            names = (*walked[1], *walked[0].early) if stage.chunk.loss else ()
            passes = Passes(units, self.lines, Walks(both, inputs, weights, names, edges.slope), stays)
            stages.append(Halved(stage, passes, *neighbours(stage.chunk, rank.chunks)))
        first = halved_step(rank.order, tuple(stages), edges, self._buffers(edges))
        later = halved_step(rank.order, tuple(stages), edges, None)
        return lambda again: (later if again else first,)

    def edges(self, pieces: Pieces) -> Edges:
        """Lines that pass between stages, and what stays of a step."""
        book, run = self.job.book, self.job.run
        line = book.lines[pieces.hidden]
        named = (
            (Account.ACTIVATIONS, "hidden states", AUTOGRAD),
            (Account.BACKWARD, "gradient of hidden states", AUTOGRAD),
            (Account.BUFFERS, "hidden states received", STAGES),
            (Account.BUFFERS, "gradients received", STAGES),
        )
        hidden, slope, received, arrived = (
            book.tensor(account, name, line.dims, line.dtype, source) for account, name, source in named
        )
        words = self.stages.whole.model.head.weights[-1].flat[0]
        dims = (*self.job.frame().dims(()), words)
        plain, version = run.software.framework == PITHTRAIN, run.software.release(NAME)
        dtype = run.setting.weights if holds(Change.LOSS_CASTS, version) else FP32
        logits = book.tensor(Account.LOGITS, "logits of a micro-batch that has run", dims, dtype, STAGES)
        stays = (not plain and self._keeps(Keeps.OUTPUTS), not plain and self._keeps(Keeps.SLOPES))
        if plain or holds(Change.DROPS_OUTPUTS, version):
            return Edges(hidden, slope, received, arrived, logits, None, plain, stays)
        all_dims = (Axis(Dim.BATCH, dims[0].size * self.count), *dims[1:])
        merged = book.tensor(Account.LOGITS, "logits of all micro-batches", all_dims, dtype, STAGES)
        return Edges(hidden, slope, received, arrived, logits, merged, plain, stays)

    def _keeps(self, what: Keeps) -> bool:
        software = self.job.run.software
        return keeps(what, software.release("torch"), software.release(NAME))

    def _buffers(self, edges: Edges) -> Events:
        """What the stages make in the first step."""
        if edges.plain:
            return ()
        before = sum(not one.embedding for one in self.stages.chunks) * self.count
        after = sum(not one.loss for one in self.stages.chunks) * self.count
        return (edges.received + 1,) * before + (edges.arrived + 1,) * after

    def stage(self, chunk: Chunk, units: Units, walked: tuple[Pieces, tuple[int, ...]]) -> Stage:
        """One of the rank's chunks and what passes through it, of the whole model's pieces."""
        pieces, named = walked
        own = _own(pieces, chunk)
        kept, names = Kept(), (*named, *pieces.early) if chunk.loss else ()
        first = Waiting(units, self.lines, kept, (True, False))
        made = arranged(own, names, first)
        later = arranged(own, names, Waiting(units, self.lines, kept, (True, False)))
        return Stage(chunk, made, later, first.last(self._keeps(Keeps.REDUCED)))


def _own(pieces: Pieces, chunk: Chunk) -> Pieces:
    """A chunk's part of the model's pieces."""
    return replace(
        pieces,
        opening=pieces.opening if chunk.embedding else EMPTY,
        layers=pieces.layers[chunk.first : chunk.first + chunk.layers],
        closing=pieces.closing if chunk.loss else EMPTY,
        outputs=pieces.outputs if chunk.loss else (),
        early=(),
    )

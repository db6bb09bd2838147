"""How one rank holds model states: which lines its weights, gradients and parameters are, and its micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import FP32, DType
from trainledger.ledger.arrange import NONE, Micro, arranged
from trainledger.ledger.book import ACCUMULATE, MODELS, Book, Spread
from trainledger.ledger.fsdp2 import Fsdp2, How, Kept, sharded_gradient
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import Job, walk
from trainledger.ledger.units import Unit, Units
from trainledger.ledger.updates import Parameter, Runs
from trainledger.lines.line import Account, Line
from trainledger.lines.shards import rows_at, rows_of, with_rows
from trainledger.model.program import Model, Role, Weight

FREQUENCIES = ("inv_freq", "original_inv_freq")  # of as many rotary dims as there are pairs
Copies = list[tuple[int, int]]  # lines, and how many of each


def weights_of(model: Model) -> Iterator[tuple[str, Weight, int]]:
    """Every parameter in the order in which it is built: prefix of its line's name, weight, copies."""
    for weight in model.embeddings:
        yield "", weight, 1
    for block in model.blocks:
        for weight in block.weights:
            yield f"{block.name}.*.", weight, block.count
    for weight in model.head.weights:
        if not weight.tied:
            yield "", weight, 1


def buffers_of(job: Job) -> Copies:
    """Device tensors that are no parameters."""
    book = job.book
    lines = [(book.tensor(Account.BUFFERS, one.name, one.dims, one.dtype, MODELS), 1) for one in job.model.buffers]
    if not job.model.rotary:
        return lines
    half = (Axis(Dim.ROPE_DIM, job.model.rotary.dim // len(FREQUENCIES)),)
    sets = len(job.model.rotary.sets)
    return lines + [
        (book.tensor(Account.BUFFERS, f"rotary_emb.{name}", half, FP32, MODELS), sets) for name in FREQUENCIES
    ]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which micro-batches a step has: how many, whether gradients are reduced in the last one only, and whether those
    of the step before are still there."""

    count: int
    last_only: bool
    keeps: bool

    def flags(self, later: bool) -> list[tuple[bool, bool]]:
        """Of every different micro-batch of a step in turn: whether no gradient is there before, whether it reduces.

        `later`: of a step after the first.
        """
        fresh = not (later and self.keeps)
        first = (fresh, not self.last_only or self.count == 1)
        between = [(fresh, False)] if self.last_only and self.count > len((first, first)) else []
        last = [(fresh if self.last_only else False, True)] if self.count > 1 else []
        return [first, *between, *last]


class Own(Protocol):
    """A strategy that builds its states and steps the optimizer by itself."""

    def build(self) -> Runs:
        """Events of building the model's states."""

    def step(self, first: bool) -> Sequence[tuple[str, Runs]]:
        """Events of one step after its micro-batches, by moment; `first`: the optimizer's states appear."""


class Layout:
    """Everything whole on every rank."""

    def __init__(self, job: Job, schedule: Schedule, master: DType | None) -> None:
        self.job, self.schedule, self.master = job, schedule, master
        self.parameters = self.parameters_of()

    def parameters_of(self) -> tuple[Parameter, ...]:
        """What the optimizer updates, in the order of the model's parameters."""
        return tuple(
            Parameter(self.local(weight), prefix + weight.name, self.master or self.stored(weight), count)
            for prefix, weight, count in weights_of(self.job.model)
            if self.job.trained(weight)
        )

    @property
    def own(self) -> Own | None:
        """What builds and steps in place of the usual order; None where nothing does."""
        return None

    @property
    def rank(self) -> tuple[int, int] | None:
        """The rank that is looked at and the emptiest one, where ranks differ."""
        return None

    def host(self) -> tuple[tuple[Line, int], ...]:
        """Lines in the host's memory, with their copies."""
        return ()

    def stored(self, weight: Weight) -> DType:
        """The dtype in which a weight is kept."""
        return self.job.run.norms if weight.role is Role.NORM else self.job.run.stored

    def local(self, weight: Weight) -> Weight:
        """The part of a weight that this rank's optimizer updates."""
        return weight

    def held(self, weight: Weight) -> Weight:
        """The part of a weight that this rank stores."""
        return weight

    def weights(self) -> Copies:
        """Weights and buffers."""
        lines = [(self._weight(prefix, weight), count) for prefix, weight, count in weights_of(self.job.model)]
        return lines + buffers_of(self.job)

    def _weight(self, prefix: str, weight: Weight) -> int:
        held = self.held(weight)
        name = prefix + weight.name
        return self.job.book.tensor(Account.WEIGHTS, name, held.dims, self.stored(weight), MODELS, Spread(self.shards))

    @property
    def shards(self) -> int:
        """Over how many ranks a weight is spread."""
        return 1

    def gradients(self) -> Copies:
        """Gradients that stay until they are set to none."""
        return [
            (
                self.job.book.tensor(Account.GRADIENTS, one.name, one.weight.dims, self.job.run.gradients, ACCUMULATE),
                one.count,
            )
            for one in self.parameters
        ]

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """The micro-batches of a step, by whether it is later than the first."""
        made: dict[bool, Micro] = {}

        def of(fresh: bool) -> Micro:
            if fresh not in made:
                pieces, named = walk(self.job, replace(leaves, fresh=fresh))
                made[fresh] = arranged(pieces, named, NONE)
            return made[fresh]

        return lambda later: tuple(of(fresh) for fresh, _ in self.schedule.flags(later))


class Sharded(Layout):
    """FSDP2: every parameter's rows are spread over ranks; units of weights are gathered and reduced together."""

    def __init__(self, job: Job, schedule: Schedule, units: Units, how: How) -> None:
        self.units, self.how = units, how
        super().__init__(job, schedule, None)

    def local(self, weight: Weight) -> Weight:
        """The rows of the first rank, which is the fullest."""
        return replace(weight, dims=with_rows(weight.flat, rows_at(weight.flat[0].size, self.how.ranks, 0)))

    def held(self, weight: Weight) -> Weight:
        """As many rows on every rank as on the fullest."""
        return replace(weight, dims=with_rows(weight.flat, rows_of(weight.flat[0].size, self.how.ranks)))

    @property
    def shards(self) -> int:
        """The ranks of one shard group."""
        return self.how.ranks

    def gradients(self) -> Copies:
        """One tensor of each unit's reduced gradients."""
        return _gradients(self.job.book, self._all_units(), self)

    def _all_units(self) -> Sequence[Unit]:
        around = (self.units.root,) if self.units.root else ()
        return (*(self.units.own[at] for at in sorted(self.units.own)), *around)

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """The micro-batches of a step, by whether it is later than the first."""
        own = self.how.reduce == self.how.compute  # gradients that wait are autograd's own
        walked = {True: walk(self.job, leaves)}

        def step(later: bool) -> tuple[Micro, ...]:
            kept, found = Kept(), []
            for fresh, sync in self.schedule.flags(later):
                first = not (own and any(kept.waiting.values()))
                if first not in walked:
                    walked[first] = walk(self.job, replace(leaves, fresh=first))
                hooks = Fsdp2(self.job.book, self.units, self.how, kept, (fresh, sync))
                found.append(arranged(*walked[first], hooks))
            return tuple(found)

        return step


def _gradients(book: Book, units: Sequence[Unit], layout: Sharded) -> Copies:
    counts: dict[int, int] = {}
    for unit in units:
        size = sum(elements(layout.held(one).dims) for one in unit.weights if layout.job.trained(one))
        if size:
            line = sharded_gradient(book, unit, size, layout.how.stored)
            counts[line] = counts.get(line, 0) + 1
    return list(counts.items())

"""Megatron-FSDP: what a rank keeps, and what it gathers around a pass.

A transformer layer is a unit; embedding, last norm and output layer lie outside. Experts are spread over the ranks that
hold the same ones. Source: megatron/core/distributed/fsdp/src/megatron_fsdp/{megatron_fsdp,param_and_grad_buffer}.py
(2026-08).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import DTYPES, DType
from trainledger.facts.megatron import FSDP, Sharded
from trainledger.facts.megatron_ahead import AHEAD, QUIET, STAYING
from trainledger.facts.megatron_buffers import release_of
from trainledger.ledger.book import Book
from trainledger.ledger.mega_ahead import Buckets, Group, How, by_bucket
from trainledger.ledger.mega_buffers import quant_of_rank, weights_of, wrap_of
from trainledger.ledger.mega_fp8 import stored
from trainledger.ledger.mega_passes import Pass
from trainledger.ledger.mega_run import Chunk, Rank
from trainledger.ledger.mega_states import Copies, Kept, Piece, States, pattern
from trainledger.ledger.step import Updates
from trainledger.ledger.updates import Runs, births, deaths
from trainledger.lines.line import Account
from trainledger.lines.param_buffers import Parameter as Placed
from trainledger.lines.param_buffers import Wrap
from trainledger.lines.stream import Events
from trainledger.model.program import Role, Weight
from trainledger.plan.schema import Plan

AUTO = "auto"


def sharded_of(plan: Plan) -> Sharded:
    """What the plan spreads over data-parallel ranks."""
    return FSDP.shardings[str(plan.parallel.options.get(FSDP.option) or FSDP.sharding)]


def outer_of(plan: Plan) -> bool:
    """Whether master weights and states are spread over the groups of ranks, too, that each hold all weights."""
    return bool(plan.parallel.options.get(FSDP.outer, FSDP.outer_known[-1]) != FSDP.outer_known[-1])


def main_of(plan: Plan) -> DType | None:
    """The dtype of the weights that the optimizer updates besides the model's own; None where there are none."""
    given = str(plan.parallel.options.get(FSDP.main_option) or FSDP.main)
    return None if given == AUTO else DTYPES[plan.precision.master or given]


class Shards(States):
    """States of which each rank may keep its part: one flat tensor of each kind and dtype. `outer`: what the optimizer
    keeps is spread over all groups of ranks that hold the weights together."""

    def __init__(self, book: Book, kept: Kept, updates: Updates, sharded: Sharded, outer: bool = False) -> None:
        super().__init__(book, kept, updates)
        self.sharded, self.outer = sharded, outer
        self.ranks: dict[str, int] = {}
        self.every: dict[str, int] = {}  # ranks over which what the optimizer keeps is spread

    def add(self, weights: Sequence[tuple[Weight, Placed]], wrap: Wrap) -> None:
        """One model chunk, spread over its data-parallel ranks."""
        self.weights += weights
        for weight, placed in weights:
            expert = weight.role is Role.EXPERT
            whole = wrap.expert_ranks if expert else wrap.ranks
            self.ranks[placed.name] = max(wrap.shards(expert), 1)
            self.every[placed.name] = max(whole, 1) if self.outer else self.ranks[placed.name]

    def build(self) -> Runs:
        """Weights are built whole, then each rank keeps its part and makes its gradients' and master weights'."""
        own, kept, sharded = self._own(), self.kept, self.sharded
        made = self._parts(Account.WEIGHTS, None, self.ranks if sharded.weights else None)
        made += self._parts(Account.GRADIENTS, kept.gradients, self.ranks if sharded.gradients else None)
        if kept.master is not None:
            made += self._parts(Account.MASTER, kept.master, self.every if sharded.states else None)
        return [*births(own), *births(made), *deaths(own)]

    def copies(self) -> Copies:
        """None: gradients are kept in the dtype that the optimizer reads."""
        return []

    def _owned(self) -> Iterator[Piece]:
        """This rank's part of every weight."""
        for weight, placed in self.weights:
            ranks = self.every[placed.name] if self.sharded.states else 1
            yield Piece(pattern(placed.name), (Axis(Dim.ELEMENTS, -(-weight.elements // ranks)),), Role.MATRIX)

    def _parts(self, account: Account, dtype: DType | None, over: Mapping[str, int] | None) -> Copies:
        """A tensor of each dtype (None: the weights' own) and group of ranks; `over`: how many ranks each weight is
        spread over (None: none is)."""
        sizes: Counter[tuple[DType, int]] = Counter()
        for weight, placed in self.weights:
            own = dtype or placed.stored or self.kept.weights
            sizes[own, 1 if over is None else over[placed.name]] += weight.elements
        what = account.value.replace("_", " ")
        name = f"all {what}" if over is None else f"this rank's part of {what}"
        return [
            (self.book.tensor(account, name, (Axis(Dim.ELEMENTS, -(-size // ranks)),), own, FSDP.source), 1)
            for (own, ranks), size in sizes.items()
        ]


Whole = list[tuple[Weight, DType]]  # weights, each in the dtype that it is gathered in


@dataclass(frozen=True, slots=True)
class Gathering:
    """What is around the passes of a plan's ranks. `staying`: what lies outside of layers stays gathered between
    steps; `quiet`: its hooks gather nothing ahead once a backward has begun."""

    plan: Plan
    kept: Kept
    staying: bool
    quiet: bool

    @classmethod
    def of(cls, plan: Plan, kept: Kept) -> Gathering:
        """As the plan's release has it."""
        release = release_of(plan.stack.versions)
        return cls(plan, kept, STAYING.holds(release), QUIET.holds(release))

    def __call__(self, rank: Rank, made: Pass, chunk: Chunk) -> Pass:
        """A pass within a step."""
        return self._around(rank, made, chunk, there=True, roots=not self.quiet)

    def first(self, rank: Rank, made: Pass, chunk: Chunk) -> Pass:
        """The run's first pass."""
        return self._around(rank, made, chunk, there=False, roots=True)

    def again(self, rank: Rank, made: Pass, chunk: Chunk) -> Pass:
        """The first pass of a later step, or of an evaluation."""
        return self._around(rank, made, chunk, there=self.staying, roots=not self.quiet)

    def ended(self, rank: Rank) -> Events:
        """What goes as a step's gradients are there: what lies outside of layers, unless it stays."""
        if self.staying:
            return ()
        every = (self._buckets(rank, chunk) for chunk in rank.chunks)
        return tuple(-line - 1 for one in every for at in one.root for line in one.groups[at].weights)

    def _around(self, rank: Rank, made: Pass, chunk: Chunk, there: bool, roots: bool) -> Pass:
        buckets, options = self._buckets(rank, chunk), self.plan.parallel.options
        sizes = [sum(buckets.groups[at].size for at in own) for own in buckets.layers.values()]
        mean = sum(sizes) // len(sizes) * AHEAD.units if sizes and sharded_of(self.plan).weights else 0
        unit = int(options.get(AHEAD.option) or max(AHEAD.least, mean))
        units = AHEAD.units if options.get(AHEAD.paired) else 0
        return by_bucket(made, chunk, buckets, How(unit // AHEAD.share, unit, units, roots, there))

    def _buckets(self, rank: Rank, chunk: Chunk) -> Buckets:
        """The chunk's buckets: of what lies outside of layers as many as are full, then each layer's."""
        quant, found, outside = quant_of_rank(rank), dict[int, Whole](), Whole()
        for _, layer, weight in weights_of(rank, chunk):
            own = found.setdefault(layer, []) if layer in chunk.layers else outside
            own.append((weight, stored(quant, layer, weight) or self.kept.weights))
        groups, opening, closing = list[Group](), list[int](), list[int]()
        for some in _filled(outside, wrap_of(self.plan, rank.stage).bucket):
            opens = chunk.first and any(one.role is Role.EMBEDDING for one, _ in some)
            ends = not chunk.first or any(one.role is not Role.EMBEDDING for one, _ in some)
            opening += [len(groups)] * opens
            closing += [len(groups)] * ends
            groups.append(self._group(rank.job.book, some, "embedding and output", None))
        layers = dict[int, tuple[int, ...]]()
        for layer in chunk.layers:
            experts = [one for one in found[layer] if one[0].role is Role.EXPERT]
            both = [some for some in ([one for one in found[layer] if one not in experts], experts) if some]
            layers[layer] = tuple(range(len(groups), len(groups) + len(both)))
            groups += [self._group(rank.job.book, some, "a layer", layer) for some in both]
        return Buckets(tuple(groups), layers, tuple(opening), tuple(closing))

    def _group(self, book: Book, weights: Whole, name: str, unit: int | None) -> Group:
        sizes, sharded = Counter[DType](), sharded_of(self.plan)
        for weight, dtype in weights:
            sizes[dtype] += weight.elements
        whole, reduced = f"gathered weights of {name}", f"gradients of {name} before they are reduced"
        flat = (Axis(Dim.ELEMENTS, sizes.total()),)
        return Group(
            sizes.total(),
            tuple(
                book.tensor(Account.GATHERED, whole, (Axis(Dim.ELEMENTS, size),), dtype, FSDP.source)
                for dtype, size in sizes.items()
                if sharded.weights
            ),
            (book.tensor(Account.REDUCTION, reduced, flat, self.kept.gradients, FSDP.source),) * sharded.gradients,
            unit,
        )


def _filled(weights: Whole, full: int | None) -> Iterator[Whole]:
    """The weights in turn, each bucket's until it is full; all in one where none ever is (None)."""
    some = Whole()
    for one in weights:
        some.append(one)
        if full is not None and sum(weight.elements for weight, _ in some) >= full:
            yield some
            some = Whole()
    if some:
        yield some

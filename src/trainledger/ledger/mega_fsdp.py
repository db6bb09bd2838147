"""Megatron-FSDP: what a rank keeps, and what is gathered while a layer runs.

A transformer layer is a unit; embedding, last norm and output layer are the root, gathered once a pass and kept until
its backward has ended. Experts are spread over the ranks that hold the same ones. Source: megatron/core/distributed/
fsdp/src/megatron_fsdp/{megatron_fsdp,param_and_grad_buffer}.py (2026-08).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import DTYPES, DType
from trainledger.facts.megatron import FSDP, Sharded
from trainledger.ledger.book import Book
from trainledger.ledger.mega_passes import Pass
from trainledger.ledger.mega_run import Chunk
from trainledger.ledger.mega_states import Copies, Kept, Piece, States, pattern
from trainledger.ledger.step import Updates
from trainledger.ledger.updates import Runs, births, deaths
from trainledger.lines.line import Account
from trainledger.lines.param_buffers import Parameter as Placed
from trainledger.lines.param_buffers import Wrap
from trainledger.lines.stream import Segment
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


Both = tuple[tuple[Segment, ...], tuple[Segment, ...]]  # forward and backward


@dataclass(frozen=True, slots=True)
class Unit:
    """Lines of a unit's whole weights and whole gradients; none of what is not sharded."""

    weights: tuple[int, ...] = ()
    gradients: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, book: Book, weights: Iterable[tuple[Weight, DType]], name: str, slopes: DType, sharded: Sharded
    ) -> Unit:
        """The unit that these weights make, each gathered in its dtype."""
        sizes: Counter[DType] = Counter()
        for weight, dtype in weights:
            sizes[dtype] += weight.elements
        gathered = f"gathered weights of {name}"
        whole = (Axis(Dim.ELEMENTS, sizes.total()),)
        reduced = f"gradients of {name} before they are reduced"
        return cls(
            tuple(
                book.tensor(Account.GATHERED, gathered, (Axis(Dim.ELEMENTS, size),), dtype, FSDP.source)
                for dtype, size in sizes.items()
                if sharded.weights
            ),
            (book.tensor(Account.REDUCTION, reduced, whole, slopes, FSDP.source),) * sharded.gradients,
        )


def by_unit(made: Pass, chunk: Chunk, layers: Mapping[int, Unit], root: Unit) -> Pass:
    """A pass with what is gathered: the root all through, a layer while it runs; in backward with its gradients."""
    products = dict(made.products)

    def around(part: Segment, lines: tuple[int, ...]) -> Segment:
        events = (*(one + 1 for one in lines), *part.events, *(-one - 1 for one in reversed(lines)))
        if part.events in made.products:
            products[events] = made.products[part.events] + len(lines)
        return part._replace(events=events)

    def each(segments: Sequence[Segment], numbers: Sequence[int], ends: tuple[int, int], back: bool) -> list[Segment]:
        found, (first, last), at = list(segments), ends, 0
        per = len(numbers) // max(sum(one.repeat for one in found[first : len(found) - last]), 1)
        for place in range(first, len(found) - last):
            unit = layers[numbers[at]]
            at += found[place].repeat * per
            found[place] = around(found[place], (*unit.weights, *unit.gradients) if back else unit.weights)
        return found

    def gathered(both: Both) -> Both:
        opening, closing = int(chunk.first), int(chunk.last or chunk.normed)
        forward = each(both[0], chunk.layers, (opening, closing), False)
        backward = each(both[1], chunk.layers[::-1], (closing, opening), True)
        ahead = Segment(forward[0].moment, tuple(one + 1 for one in root.weights))
        come = Segment(backward[0].moment, tuple(one + 1 for one in root.gradients))
        backward.insert(closing, come)  # as the first comes
        gone = (*(-one - 1 for one in root.gradients), *(-one - 1 for one in root.weights))
        backward.append(Segment(backward[0].moment, gone))
        return (ahead, *forward), tuple(backward)

    first, later = gathered((made.forward, made.backward)), gathered(made.after)
    return replace(made, forward=first[0], backward=first[1], products=products, after=later)

"""What FSDP2 (fully_shard) allocates around the pieces of a micro-batch: gathers, copies out of them, reductions.

A unit's weights are gathered into one flat output, and each is copied out of it. In forward the output stays until the
next unit has been copied out; in backward it goes at once, and the next unit is gathered while this one runs.
Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py, _fsdp_state.py (v2.4 to v2.13).
Allocated bytes follow the order of these calls; streams move only what is reserved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import DType
from trainledger.facts.sharding import FSDP2
from trainledger.ledger.arrange import Hooks
from trainledger.ledger.blocks import Arrived, Walked
from trainledger.ledger.book import Book, Spread
from trainledger.ledger.units import ROOT_UNIT, Unit, Units
from trainledger.lines.line import Account
from trainledger.lines.shards import rows_of, with_rows
from trainledger.lines.stream import Events
from trainledger.model.program import Weight


@dataclass(frozen=True, slots=True)
class How:
    """FSDP2's settings: ranks of one shard group; dtypes of shards, of what is gathered, of reductions; which units
    stay gathered after forward (layers, root); what a reduction's input and an all-reduce's keep; whether layers are
    recomputed by a forward of their own (reentrant); whether the head is called as a module."""

    ranks: int
    stored: DType
    compute: DType
    reduce: DType
    keeps: bool
    root_keeps: bool
    holds_input: bool
    holds_output: bool
    reentrant: bool
    calls_head: bool


@dataclass(slots=True)
class Kept:
    """What stays from one micro-batch to the next: gradients that are not reduced yet, by unit and weight (lines), and
    units whose weights are gathered."""

    waiting: dict[int, dict[Weight, int]] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)


class Streams(NamedTuple):
    """Numbers of the streams on which gathers and reductions make their tensors."""

    gather: int
    reduce: int


class Fsdp2(Hooks):
    """One micro-batch. `fresh`: no reduced gradient is there yet; `sync`: gradients are reduced in it."""

    def __init__(self, book: Book, units: Units, how: How, kept: Kept, flags: tuple[bool, bool]) -> None:
        self.book, self.units, self.how, self.kept = book, units, how, kept
        self.fresh, self.sync = flags
        self.pending: set[int] = set()
        self.held: int | None = None  # the output of the gather that was copied out last in forward
        self.input: int | None = None  # of the reduction that ran last
        self.sums: list[int] = []  # outputs of reductions that all-reduces hold
        self.arrived: dict[int, list[Arrived]] = {}

    # ---- the order of calls

    def ahead(self, at: int) -> Events:
        events: list[int] = []
        for unit in ([ROOT_UNIT] if at == 0 else []) + [at]:
            events += self._unshard(unit) + self._wait(unit, True)
        return tuple(events)

    def passed(self, at: int) -> Events:
        events = [] if at == self.units.last or self.how.keeps else self._reshard(at)
        if at == self.units.last:
            if not self.how.root_keeps:
                events += self._reshard(ROOT_UNIT)
            events += self._let_go()
        return tuple(events)

    def behind(self, at: int) -> Events:
        if at == self.units.last:
            root = self._unshard(ROOT_UNIT) + self._wait(ROOT_UNIT, False)
            return tuple(root if self._late(at) else root + self._ahead_of(at))
        events = self._unshard(at) + self._wait(at, self._again(at))
        return tuple(events if self._again(at) else events + self._ahead_of(at))

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        product = walked.products[1]
        if self._late(at) and product:
            return {product - 1: tuple(self._ahead_of(at))}  # as the gradient of the logits arrives
        if self._again(at):  # the recompute is a forward of its own, whose end lets its gather go
            return {walked.again: (*self._let_go(), *self._ahead_of(at))}
        return {}

    def done(self, at: int, arrived: tuple[Arrived, ...]) -> Events:
        own = at in self.units.own
        self.arrived.setdefault(at if own else ROOT_UNIT, []).extend(arrived)
        return tuple(self._reduce(at)) if own and at else ()

    def ended(self) -> Events:
        events = [event for unit in (0, ROOT_UNIT) for event in self._reduce(unit)]
        events += [-line - 1 for line in ([self.input] if self.input is not None else []) + self.sums]
        self.input, self.sums = None, []
        return tuple(events)

    def _late(self, at: int) -> bool:
        """Whether it is the head's own module that backward comes to first; a fused loss reads only its weight."""
        return at == self.units.last and at in self.units.own and self.how.calls_head

    def _ahead_of(self, at: int) -> list[int]:
        """The unit that backward needs next is gathered while this one runs."""
        return self._unshard(at - 1) if at - 1 in self.units.own else []

    def _again(self, at: int) -> bool:
        return self.how.reentrant and 0 < at < self.units.last

    # ---- one unit

    def _unit(self, at: int) -> Unit | None:
        return self.units.root if at == ROOT_UNIT else self.units.own.get(at)

    def _unshard(self, at: int) -> list[int]:
        """Cast the shards, gather them."""
        unit = self._unit(at)
        if unit is None or at in self.kept.open or at in self.pending:
            return []
        self.pending.add(at)
        gather = self._gather(unit) + 1
        if self.how.stored == self.how.compute:
            return [gather]
        size = sum(self._part(weight) for weight in unit.weights)
        cast = (
            self._flat(Account.GATHERED, f"cast of the shards of {unit.name}", size, self.how.compute, STREAMS.gather)
            + 1
        )
        return [cast, gather, -cast]

    def _wait(self, at: int, forward: bool) -> list[int]:
        """Copy every weight out of the gather."""
        unit = self._unit(at)
        if unit is None or at in self.kept.open:
            return []
        self.pending.discard(at)
        self.kept.open.add(at)
        events = self._let_go() if forward else []
        events += [line + 1 for line in self._copies(unit)]
        if forward:
            self.held = self._gather(unit)
        else:
            events.append(-self._gather(unit) - 1)
        return events

    def _let_go(self) -> list[int]:
        held, self.held = self.held, None
        return [] if held is None else [-held - 1]

    def _reshard(self, at: int) -> list[int]:
        unit = self._unit(at)
        if unit is None or at not in self.kept.open:
            return []
        self.kept.open.discard(at)
        return [-line - 1 for line in self._copies(unit)]

    def _reduce(self, at: int) -> list[int]:
        """Gradients of a unit: kept whole, or reduced to this rank's part."""
        unit, arrived = self._unit(at), self.arrived.pop(at, [])
        waiting = self.kept.waiting.setdefault(at, {})
        if unit is None or not (arrived or waiting):
            return [] if unit is None else self._reshard(at)
        events: list[int] = []
        whole = {one.weight: one.line for one in arrived}
        if not self.sync:
            return self._reshard(at) + self._accumulate(unit, whole, waiting)
        if waiting:  # added to what waits: by autograd itself in one dtype, by FSDP otherwise
            events += [-line - 1 for line in whole.values()] if self.how.reduce != self.how.compute else []
            whole = dict(waiting)
            waiting.clear()
        events += self._reshard(at) + self._last_input()
        width = self.how.reduce
        size = sum(self._part(weight) for weight in whole)
        taken = self._flat(Account.REDUCTION, f"gradients of {unit.name} to reduce", size * self.how.ranks, width)
        events += [taken + 1, *(-line - 1 for line in whole.values())]
        part = sharded_gradient(self.book, unit, size, self.how.stored)
        out = part
        if width != self.how.stored:
            out = self._flat(Account.REDUCTION, f"reduced gradients of {unit.name}", size, width, STREAMS.reduce)
            events += [out + 1, part + 1]
            if self.how.holds_output:
                self.sums.append(out)
            else:
                events.append(-out - 1)
        else:
            events.append(part + 1)
        if not self.fresh:
            events.append(-part - 1)
        if self.how.holds_input:
            self.input = taken
        else:
            events.append(-taken - 1)
        return events

    def _last_input(self) -> list[int]:
        held, self.input = self.input, None
        return [] if held is None else [-held - 1]

    def _accumulate(self, unit: Unit, whole: Mapping[Weight, int], waiting: dict[Weight, int]) -> list[int]:
        """Without a reduction gradients stay whole, in the dtype of reductions."""
        events: list[int] = []
        for weight, line in whole.items():
            if self.how.reduce == self.how.compute:
                waiting.setdefault(weight, line)
                continue
            if weight not in waiting:
                name = f"{unit.prefix}{weight.name} (not reduced yet)"
                source = FSDP2.source
                waiting[weight] = self.book.tensor(Account.REDUCTION, name, weight.dims, self.how.reduce, source)
                events.append(waiting[weight] + 1)
            events.append(-line - 1)
        return events

    # ---- lines

    def _part(self, weight: Weight) -> int:
        """Elements of this rank's padded rows of a weight."""
        dims = weight.flat
        return elements(with_rows(dims, rows_of(dims[0].size, self.how.ranks)))

    def _gather(self, unit: Unit) -> int:
        size = sum(self._part(weight) for weight in unit.weights) * self.how.ranks
        return self._flat(Account.GATHERED, f"gathered weights of {unit.name}", size, self.how.compute, STREAMS.gather)

    def _copies(self, unit: Unit) -> Sequence[int]:
        ranks = self.how.ranks
        return [
            self.book.tensor(
                Account.GATHERED,
                f"{unit.prefix}{weight.name} (whole)",
                with_rows(weight.flat, rows_of(weight.flat[0].size, ranks) * ranks),
                self.how.compute,
                FSDP2.source,
            )
            for weight in unit.weights
        ]

    def _flat(self, account: Account, name: str, size: int, dtype: DType, stream: int = 0) -> int:
        dims = (Axis(Dim.ELEMENTS, size),)
        return self.book.tensor(account, name, dims, dtype, FSDP2.source, Spread(1, stream))


STREAMS = Streams(gather=1, reduce=2)


def sharded_gradient(book: Book, unit: Unit, size: int, dtype: DType) -> int:
    """The line of a unit's reduced gradients on one rank (elements): one tensor, which its weights' gradients view."""
    dims = (Axis(Dim.ELEMENTS, size),)
    name = f"gradients of {unit.name}, this rank's part"
    return book.tensor(Account.GRADIENTS, name, dims, dtype, FSDP2.source, Spread(1, STREAMS.reduce))

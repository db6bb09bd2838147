"""What FSDP1 (FullyShardedDataParallel) allocates around the pieces of a micro-batch: flat weights, flat gradients.

A unit's weights are one flat parameter; its gather is one flat tensor that they view, and the unit's gradients are
joined in one before they are reduced.
Source: torch/distributed/fsdp/_runtime_utils.py, _flat_param.py (v2.4 to v2.13). Allocated bytes follow the order of
these calls; streams move only what is reserved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import DType
from trainledger.facts.sharding import FSDP1
from trainledger.ledger.arrange import Hooks
from trainledger.ledger.blocks import Arrived, Walked
from trainledger.ledger.book import Book, Spread
from trainledger.ledger.units import ROOT_UNIT, Unit, Units
from trainledger.lines.line import Account
from trainledger.lines.shards import rows_of
from trainledger.lines.stream import Events
from trainledger.model.program import Weight

CAST, GATHER, REDUCE = 1, 2, 3  # streams, beside that of compute


@dataclass(frozen=True, slots=True)
class Flat:
    """FSDP1's settings: ranks of one shard group (1: weights stay whole on every rank); dtypes of shards, of what is
    gathered, of reductions; whether parameters keep their own names; whether layers stay gathered after forward;
    whether the unit that is needed next is gathered while one runs backward, and before or after its reduction;
    whether layers are recomputed by a forward of their own (reentrant)."""

    ranks: int
    stored: DType
    compute: DType
    reduce: DType
    named: bool
    keeps: bool
    early: bool
    late: bool
    reentrant: bool

    @property
    def whole(self) -> bool:
        """Whether every rank stores all of a unit (NO_SHARD)."""
        return self.ranks == 1

    def offsets(self, unit: Unit) -> Iterator[tuple[Weight, int]]:
        """Every weight of the flat parameter with where it begins (elements)."""
        step = max(FSDP1.alignment // self.compute.bytes_of(1), 1) if self.named else 1
        start = 0
        for weight in unit.weights:
            start = rows_of(start, step) * step
            yield weight, start
            start += weight.elements

    def size(self, unit: Unit) -> int:
        """Elements of the unit's flat parameter, padded so that every rank holds as many."""
        weight, start = list(self.offsets(unit))[-1]
        return self.part(unit, start + weight.elements) * self.ranks

    def part(self, unit: Unit, size: int = 0) -> int:
        """Elements that one rank holds."""
        return rows_of(size or self.size(unit), self.ranks)

    def pieces(self, unit: Unit, rank: int = 0) -> Iterator[tuple[Weight, int]]:
        """Elements of every weight that lie in this rank's part."""
        length = self.part(unit)
        first = rank * length
        for weight, start in self.offsets(unit):
            inside = min(start + weight.elements, first + length) - max(start, first)
            if inside > 0:
                yield weight, inside


@dataclass(slots=True)
class Stay:
    """What stays from one micro-batch to the next: whole flat gradients, by unit (lines); reduced ones, by unit; units
    whose weights are gathered."""

    waiting: dict[int, int] = field(default_factory=dict)
    reduced: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)


class Fsdp1(Hooks):
    """One micro-batch. `sync`: gradients are reduced in it; `anew`: the reduced ones of the step before go first."""

    def __init__(self, book: Book, units: Units, how: Flat, stay: Stay, flags: tuple[bool, bool]) -> None:
        self.book, self.units, self.how, self.stay = book, units, how, stay
        self.sync, self.anew = flags
        self.arrived: dict[int, list[Arrived]] = {}

    # ---- the order of calls

    def ahead(self, at: int) -> Events:
        events: list[int] = []
        if at == 0:
            if self.anew:  # set to none only now, for the optimizer sees views of them
                events += [-line - 1 for line in self.stay.reduced.values()]
                self.stay.reduced.clear()
            events += self._unshard(ROOT_UNIT)
        return (*events, *self._unshard(at))

    def passed(self, at: int) -> Events:
        own = [] if self.how.keeps else self._reshard(at)
        return (*own, *(self._reshard(ROOT_UNIT) if at == self.units.last and self.how.whole else ()))

    def behind(self, at: int) -> Events:
        root = self._unshard(ROOT_UNIT) if at == self.units.last else []
        return (*root, *self._unshard(at), *(self._next(at) if self.how.early else ()))

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        if self.how.reentrant and 0 < at < self.units.last and at in self.units.own:
            return {walked.again: (*self._reshard(at), *self._unshard(at))}  # the recompute is a forward of its own
        return {}

    def done(self, at: int, arrived: tuple[Arrived, ...]) -> Events:
        unit = at if at in self.units.own else ROOT_UNIT
        self.arrived.setdefault(unit, []).extend(arrived)
        return tuple(self._reduce(unit)) if unit >= 0 else ()

    def ended(self) -> Events:
        return tuple(self._reduce(ROOT_UNIT))

    # ---- one unit

    def _unit(self, at: int) -> Unit | None:
        return self.units.root if at == ROOT_UNIT else self.units.own.get(at)

    def _next(self, at: int) -> list[int]:
        return self._unshard(at - 1) if at - 1 in self.units.own and not self.how.reentrant else []

    def _unshard(self, at: int) -> list[int]:
        """Cast the shard, gather it; what every rank stores whole is only cast."""
        unit, how = self._unit(at), self.how
        if unit is None or at in self.stay.open:
            return []
        self.stay.open.add(at)
        casts = how.stored != how.compute
        if how.whole:
            return [self._whole(unit) + 1] if casts else []
        events = [self._whole(unit) + 1]
        if not casts:
            return events
        name = f"cast of the shard of {unit.name}"
        cast = self._line(Account.GATHERED, name, how.part(unit), (how.compute, CAST)) + 1
        return [cast, *events, -cast]

    def _reshard(self, at: int) -> list[int]:
        unit = self._unit(at)
        if unit is None or at not in self.stay.open:
            return []
        self.stay.open.discard(at)
        empty = self.how.whole and self.how.stored == self.how.compute
        return [] if empty else [-self._whole(unit) - 1]

    def _reduce(self, at: int) -> list[int]:
        """Join a unit's gradients, keep them whole or reduce them to this rank's part."""
        unit, arrived = self._unit(at), self.arrived.pop(at, [])
        if unit is None or not arrived:
            return [] if unit is None else self._reshard(at)
        name = f"gradients of {unit.name}, joined"
        flat = self._line(Account.REDUCTION, name, self.how.size(unit), (self.how.compute, 0))
        events = [flat + 1, *(-one.line - 1 for one in arrived)]
        if at in self.stay.waiting:
            events.append(-flat - 1)
        if not (self.how.keeps and not self.sync):
            events += self._reshard(at)
        late = self._next(at) if self.how.late else []
        events += late
        if not self.sync:
            self.stay.waiting[at] = flat
            return events
        self.stay.waiting.pop(at, None)
        return events + self._to_part(unit, at, flat)

    def _to_part(self, unit: Unit, at: int, flat: int) -> list[int]:
        how, whole, part = self.how, self.how.size(unit), self.how.part(unit)
        used, events = [flat], list[int]()
        if how.reduce != how.compute:
            name = f"gradients of {unit.name} to reduce"
            used.append(self._line(Account.REDUCTION, name, whole, (how.reduce, REDUCE)))
            events.append(used[-1] + 1)
        kept = flat_gradient(self.book, unit, how)
        if not how.whole:
            out = kept
            if how.reduce != how.stored:
                name = f"reduced gradients of {unit.name}"
                out = self._line(Account.REDUCTION, name, part, (how.reduce, REDUCE))
            events.append(out + 1)
            if out != kept:
                events += [kept + 1, -out - 1]
        elif how.reduce != how.stored:
            events.append(kept + 1)
        else:  # the last of the casts is what stays
            last = used.pop()
            events += [-last - 1, kept + 1]
        if at in self.stay.reduced:
            events.append(-kept - 1)
        self.stay.reduced[at] = kept
        return events + [-line - 1 for line in reversed(used)]

    # ---- lines

    def _whole(self, unit: Unit) -> int:
        return self._line(
            Account.GATHERED, f"gathered weights of {unit.name}", self.how.size(unit), (self.how.compute, GATHER)
        )

    def _line(self, account: Account, name: str, size: int, how: tuple[DType, int]) -> int:
        dtype, stream = how
        return self.book.tensor(account, name, (Axis(Dim.ELEMENTS, size),), dtype, FSDP1.source, Spread(1, stream))


def flat_gradient(book: Book, unit: Unit, how: Flat) -> int:
    """The line of a unit's reduced gradients on one rank: one tensor, which its weights' gradients view."""
    dims = (Axis(Dim.ELEMENTS, how.part(unit)),)
    name = f"gradients of {unit.name}, this rank's part"
    return book.tensor(Account.GRADIENTS, name, dims, how.stored, FSDP1.source, Spread(how.ranks, REDUCE))

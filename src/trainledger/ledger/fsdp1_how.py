"""FSDP1's settings: the dtypes and ranks of its shards, and where in a unit's flat parameter a weight lies.

Source: torch/distributed/fsdp/_flat_param.py (v2.4 to v2.14).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainledger.base.dims import Dims, elements
from trainledger.facts.dtypes import DType
from trainledger.facts.sharding import FSDP1
from trainledger.ledger.units import Member, Unit
from trainledger.lines.shards import rows_of
from trainledger.model.program import Weight
from trainledger.model.quantised import flattened

EARLY, LATE = "BACKWARD_PRE", "BACKWARD_POST"


@dataclass(frozen=True, slots=True)
class Flat:
    """FSDP1's settings: ranks of one shard group (1: weights stay whole on every rank); dtypes of shards, of what is
    gathered, of reductions (None: every unit in its own); whether parameters keep their own names; whether layers stay
    gathered after forward; whether the next unit is gathered while one runs forward, and when backward gathers it
    (EARLY: before a unit's reduction, LATE: after it, else not ahead); whether layers are recomputed by a forward of
    the unit's own (reentrant). `offload`: shards lie in the host's memory. `hidden`: a layer's input, where hooks of
    frozen units hold it to the end of backward. `replicated`: an all-reduce over replicas follows the reduction
    (HYBRID_SHARD)."""

    ranks: int
    stored: DType
    compute: DType | None
    reduce: DType | None
    named: bool
    keeps: bool
    forward: bool
    backward: str
    reentrant: bool
    offload: bool = False
    hidden: tuple[Dims, DType] | None = None
    replicated: bool = False

    def kept(self, unit: Unit) -> DType:
        """The dtype of a unit's shards."""
        return unit.dtype or self.stored

    def read(self, unit: Unit) -> DType:
        """The dtype in which a unit is gathered."""
        return self.compute or self.kept(unit)

    def sums(self, unit: Unit) -> DType:
        """The dtype in which a unit's gradients are reduced."""
        return self.reduce or self.kept(unit)

    def stays(self, unit: Unit) -> bool:
        """Whether a unit's joined gradients are what it keeps: nothing cuts or casts them."""
        return self.whole and self.read(unit) == self.sums(unit) == self.kept(unit)

    @property
    def early(self) -> bool:
        """Whether backward gathers the next unit before this one's gradients are reduced."""
        return self.backward == EARLY

    @property
    def late(self) -> bool:
        """Whether backward gathers the next unit after this one's gradients are reduced."""
        return self.backward == LATE

    @property
    def whole(self) -> bool:
        """Whether every rank stores all of a unit (NO_SHARD)."""
        return self.ranks == 1

    def length(self, unit: Unit, weight: Weight) -> int:
        """Elements of a weight in its unit's flat parameter; of a quantised one its codes, as elements of its dtype."""
        if weight.packed is None:
            return weight.elements
        found = flattened(weight, self.stored)
        size = sum(one.dtype.bytes_of(elements(one.dims)) * one.copies for one in found)
        return rows_of(size, self.kept(unit).bytes_of(1))

    def offsets(self, unit: Unit) -> Iterator[tuple[Member, int]]:
        """Every weight of the flat parameter with where it begins (elements)."""
        step = max(FSDP1.alignment // self.read(unit).bytes_of(1), 1) if self.named else 1
        start = 0
        for member in unit.members:
            start = rows_of(start, step) * step
            yield member, start
            start += self.length(unit, member.weight)

    def size(self, unit: Unit) -> int:
        """Elements of the unit's flat parameter, padded so that every rank holds as many."""
        return self.part(unit) * self.ranks

    def part(self, unit: Unit) -> int:
        """Elements that one rank holds."""
        return rows_of(self._end(unit), self.ranks)

    def filled(self, unit: Unit) -> int:
        """Elements of the unit's whole gradient: its parameters' own names come with padding inside the flat parameter,
        else that lies outside and is not read."""
        return self.size(unit) if self.named else self._end(unit)

    def _end(self, unit: Unit) -> int:
        member, start = list(self.offsets(unit))[-1]
        return start + self.length(unit, member.weight)

    def pieces(self, unit: Unit, rank: int = 0) -> Iterator[tuple[Member, int]]:
        """Elements of every weight that lie in this rank's part."""
        length = self.part(unit)
        first = rank * length
        for member, start in self.offsets(unit):
            inside = min(start + self.length(unit, member.weight), first + length) - max(start, first)
            if inside > 0:
                yield member, inside

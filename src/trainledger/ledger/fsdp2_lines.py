"""The lines of FSDP2's units: shards brought and cast, gathers, whole weights, reductions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import UINT8, DType
from trainledger.facts.sharding import FSDP2
from trainledger.ledger.book import Book, Made
from trainledger.ledger.units import ByUnit, Member, Unit
from trainledger.lines.line import Account
from trainledger.model.program import Weight

if TYPE_CHECKING:
    from trainledger.ledger.fsdp2_how import How


class UnitLines:
    """The lines of a unit's gathers and reductions."""

    def __init__(self, book: Book, how: How) -> None:
        self.book, self.how = book, how
        self._parts: dict[Weight, int] = {}
        self.size, self.cast = ByUnit(self._size), ByUnit(self._cast)
        self.gather, self.copies = ByUnit(self._gather), ByUnit(self._copies)

    def part(self, weight: Weight) -> int:
        """Elements of this rank's padded part of a weight."""
        if weight not in self._parts:
            self._parts[weight] = elements(self.how.held(weight))
        return self._parts[weight]

    def share(self, weight: Weight) -> int:
        """Elements of this rank's padded part of what is reduced of a weight's gradient."""
        if not weight.rows or self.how.reduced.cuts:
            return self.part(weight)
        return elements(self.how.held(replace(weight, dims=weight.slope)))

    def _ranks(self, unit: Unit) -> int:
        """Ranks that a unit's weights are sharded over."""
        return self.how.ranks_of(unit.members[0].weight)

    def _size(self, unit: Unit) -> int:
        """Elements of this rank's part of a unit."""
        return sum(self.part(member.weight) for member in unit.members)

    def _cast(self, unit: Unit) -> int:
        """The shards in the dtype in which they are gathered."""
        name = f"cast of the shards of {unit.name}"
        return self._flat(Account.GATHERED, name, *self._sized(unit, 1))

    def brought(self, member: Member) -> int:
        """A shard copied from the host."""
        name = f"{member.name} (shard, from the host)"
        made = (self.how.kept(member.weight), FSDP2.streams.gather)
        return self._flat(Account.GATHERED, name, self.part(member.weight), made)

    def cast_of(self, member: Member) -> int:
        """That shard in the dtype in which it is gathered."""
        name = f"{member.name} (shard, cast)"
        made = (self.how.compute, FSDP2.streams.gather)
        return self._flat(Account.GATHERED, name, self.part(member.weight), made)

    def _gather(self, unit: Unit) -> int:
        """What all ranks' shards are gathered in."""
        return self._flat(Account.GATHERED, f"gathered weights of {unit.name}", *self._sized(unit, self._ranks(unit)))

    def read(self, weight: Weight) -> DType:
        """The dtype in which a weight is gathered: codes of a packed one as they are."""
        return self.how.kept(weight) if weight.packed else weight.gathered or self.how.compute

    def _sized(self, unit: Unit, ranks: int) -> tuple[int, tuple[DType, int]]:
        """Elements of a unit's parts of so many ranks and their dtype: bytes, where not all have one."""
        dtypes = {self.read(member.weight) for member in unit.members}
        if len(dtypes) == 1:
            return self.size(unit) * ranks, (dtypes.pop(), FSDP2.streams.gather)
        size = sum(self.read(one.weight).bytes_of(self.part(one.weight)) for one in unit.members)
        return size * ranks, (UINT8, FSDP2.streams.gather)

    def _copies(self, unit: Unit) -> list[int]:
        """Every weight in whole, padded, copied out of the gather."""
        return [self._copy(member) for member in unit.members]

    def _copy(self, member: Member) -> int:
        whole, dtype = self.how.whole(member.weight), self.read(member.weight)
        return self.book.tensor(Account.GATHERED, f"{member.name} (whole)", whole, dtype, FSDP2.source)

    def parts(self, unit: Unit) -> list[int]:
        """Weights that are sharded along their second dim, rank by rank, before they are put together."""
        return [
            self.book.tensor(
                Account.GATHERED, f"{one.name} (rank by rank)", one.weight.flat, self.read(one.weight), FSDP2.source
            )
            for one in unit.members
            if self.how.by_width(one.weight)
        ]

    def turned(self, weight: Weight, gradient: int) -> int:
        """The gradient of such a weight, rank by rank."""
        name = f"gradient of {weight.name}, rank by rank"
        dtype = self.book.lines[gradient].dtype
        return self.book.tensor(Account.REDUCTION, name, weight.flat, dtype, FSDP2.source)

    def recast(self, unit: Unit) -> int:
        """These parts together, as they are gathered again."""
        ranks = self._ranks(unit) // self.how.between
        return self._flat(Account.GATHERED, f"parts of {unit.name} to gather again", *self._sized(unit, ranks))

    def between(self, unit: Unit) -> list[int]:
        """Every weight's part over the fewer ranks that keep it between forward and backward."""
        return [self._between(member) for member in unit.members]

    def _between(self, member: Member) -> int:
        name, how = f"{member.name} (kept over {self.how.between} ranks)", self.how
        size = self.part(member.weight) * how.ranks_of(member.weight) // how.between
        return self._flat(Account.GATHERED, name, size, (self.read(member.weight), 0))

    def unreduced(self, weight: Weight) -> int:
        """A whole gradient that waits in the dtype of reductions."""
        name = f"{weight.name} (not reduced yet)"
        return self.book.tensor(Account.REDUCTION, name, weight.slope, self.how.reduce, FSDP2.source)

    def cut(self, weight: Weight, gradient: int) -> int:
        """This rank's rows of the gradient of a table of which it has a part, cloned; else the gradient itself."""
        if not weight.rows or not self.how.reduced.cuts:
            return gradient
        name = f"gradient of {weight.name}, this rank's rows"
        return self.book.tensor(Account.REDUCTION, name, weight.dims, self.book.lines[gradient].dtype, FSDP2.source)

    def to_reduce(self, unit: Unit, size: int) -> int:
        """The reduction's input, of a unit whose trained part has `size` elements on a rank: made on the stream of
        compute where it stays until the next one is made, before that release on that of reductions."""
        name = f"gradients of {unit.name} to reduce"
        stream = 0 if self.how.reduced.holds_input else FSDP2.streams.reduce
        return self._flat(Account.REDUCTION, name, size * self._ranks(unit), (self.how.reduce, stream))

    def reduced(self, unit: Unit, size: int) -> int:
        """The reduction's output, before it is cast to the shards' dtype."""
        name = f"reduced gradients of {unit.name}"
        return self._flat(Account.REDUCTION, name, size, (self.how.reduce, FSDP2.streams.reduce))

    def gradient(self, unit: Unit, size: int) -> int:
        """A unit's reduced gradients on one rank: one tensor, which its weights' gradients view."""
        name = f"gradients of {unit.name}, this rank's part"
        made = (self.summed(unit), self._after(unit))
        return self._flat(Account.GRADIENTS, name, size, made, self._ranks(unit))

    def summed(self, unit: Unit) -> DType:
        """The dtype of a unit's reduced gradients."""
        return self.how.summed([one.weight for one in unit.members])

    def leaving(self, unit: Unit, size: int) -> int:
        """The same, where it is copied to the host at once."""
        name = f"reduced gradients of {unit.name}, on their way to the host"
        return self._flat(Account.REDUCTION, name, size, (self.summed(unit), self._after(unit)))

    def _after(self, unit: Unit) -> int:
        """The stream on which a reduction's output is made what is kept: of the last collective, where it is cast."""
        cast = self.how.reduced.replicated and self.how.reduce != self.summed(unit)
        return FSDP2.streams.replicas if cast else FSDP2.streams.reduce

    def _flat(self, account: Account, name: str, size: int, made: tuple[DType, int], shards: int = 1) -> int:
        dtype, stream = made
        dims = (Axis(Dim.ELEMENTS, size),)
        return self.book.made(account, name, dims, Made(dtype, FSDP2.source, shards, stream))

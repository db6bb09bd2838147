"""The lines of FSDP1's flat tensors: shards, gathers, gradients, by unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import DType
from trainledger.facts.sharding import FSDP1, HOOK
from trainledger.ledger.book import Book, Made
from trainledger.ledger.units import ByUnit, Member, Unit
from trainledger.lines.line import Account
from trainledger.model.program import Weight

if TYPE_CHECKING:
    from trainledger.ledger.fsdp1_how import Flat


class FlatLines:
    """The lines of a unit's flat tensors."""

    def __init__(self, book: Book, how: Flat) -> None:
        self.book, self.how = book, how
        self.part, self.size, self.filled = ByUnit(how.part), ByUnit(how.size), ByUnit(how.filled)

    def cast(self, unit: Unit) -> int:
        """The shard in the dtype in which it is gathered."""
        name = f"cast of the shard of {unit.name}"
        return self._line(Account.GATHERED, name, self.part(unit), (self.how.read(unit), FSDP1.streams.cast))

    def brought(self, unit: Unit) -> int:
        """The shard copied from the host."""
        name = f"shard of {unit.name}, from the host"
        return self._line(Account.GATHERED, name, self.part(unit), (self.how.kept(unit), FSDP1.streams.cast))

    def whole(self, unit: Unit) -> int:
        """The gathered flat parameter; of one that every rank stores whole, the cast."""
        name, streams = f"gathered weights of {unit.name}", FSDP1.streams
        stream = streams.cast if self.how.whole else streams.gather
        return self._line(Account.GATHERED, name, self.size(unit), (self.how.read(unit), stream))

    def laid_out(self, unit: Unit) -> tuple[int, ...]:
        """What the first forward makes of a unit on the stream of compute and frees at once, to have its storage by
        name: the cast, the gathered parameter, and that in the shards' dtype."""
        how, name = self.how, f"of {unit.name}, laid out and let go"
        kept, read = how.kept(unit), how.read(unit)
        sizes = [] if kept == read else [(f"cast of the shard {name}", self.part(unit), read)]
        if not how.whole:
            sizes.append((f"gathered weights {name}", self.size(unit), read))
            sizes += [] if kept == read else [(f"gathered weights {name}, not cast", self.size(unit), kept)]
        return tuple(self._line(Account.GATHERED, text, size, (dtype, 0)) for text, size, dtype in sizes)

    def joined(self, unit: Unit) -> int:
        """All gradients of a unit in one tensor, on the stream on which forward cut the gathered weights into views:
        autograd runs the backward of that there."""
        name = f"gradients of {unit.name}, joined"
        return self._line(Account.REDUCTION, name, self.filled(unit), (self.how.read(unit), FSDP1.streams.gather))

    def summed(self, weight: Weight, dtype: DType) -> int:
        """Both gradients of a weight that is read twice, added there too: autograd adds up what a view is given on the
        stream of the view."""
        made = Made(dtype, FSDP1.source, stream=FSDP1.streams.gather)
        return self.book.made(Account.BACKWARD, f"sum of gradients of {weight.name}", weight.dims, made)

    def blank(self, unit: Unit) -> list[int]:
        """What stands for each parameter's gradient until a part of the joined ones takes its place, where parameters
        keep their own names and that part has another shape or dtype."""
        how, made = self.how, (self.how.kept(unit), FSDP1.streams.gather)
        if not how.named or (how.whole and how.kept(unit) == how.read(unit)):
            return []
        found = [(f"blank gradient of {member.name}", size) for member, size in how.pieces(unit)]
        return [self._line(Account.REDUCTION, name, size, made) for name, size in found]

    def to_reduce(self, unit: Unit) -> int:
        """The joined gradients in the dtype of reductions."""
        name = f"gradients of {unit.name} to reduce"
        return self._line(Account.REDUCTION, name, self.filled(unit), (self.how.sums(unit), FSDP1.streams.reduce))

    def padded(self, unit: Unit) -> int:
        """The same, padded so that every rank's part is as large."""
        name = f"gradients of {unit.name} to reduce, padded"
        return self._line(Account.REDUCTION, name, self.size(unit), (self.how.sums(unit), FSDP1.streams.reduce))

    def reduced(self, unit: Unit) -> int:
        """The reduction's output, before it is cast to the shards' dtype."""
        name = f"reduced gradients of {unit.name}"
        return self._line(Account.REDUCTION, name, self.part(unit), (self.how.sums(unit), FSDP1.streams.reduce))

    def gradient(self, unit: Unit) -> int:
        """A unit's reduced gradients on one rank: one tensor, which its weights' gradients view."""
        name, how = f"gradients of {unit.name}, this rank's part", self.how
        cast = how.replicated and how.sums(unit) != how.kept(unit)
        stream = FSDP1.streams.gather if how.stays(unit) else FSDP1.streams.replicas if cast else FSDP1.streams.reduce
        return self._line(Account.GRADIENTS, name, self.part(unit), (self.how.kept(unit), stream), self.how.ranks)

    def unflat(self, unit: Unit, member: Member) -> int:
        """A weight before it is part of a flat parameter."""
        name = f"{member.name} (before it is flat)"
        return self._line(
            Account.GATHERED, name, self.how.length(unit, member.weight), (member.weight.dtype or self.how.stored, 0)
        )

    def hidden(self, like: tuple[Dims, DType], name: str) -> int:
        """A tensor like a layer's input that a frozen unit's hook holds."""
        dims, dtype = like
        return self.book.tensor(Account.BACKWARD, f"{name}, held by a frozen unit's hook", dims, dtype, HOOK.source)

    def flat(self, unit: Unit) -> int:
        """The whole flat parameter, before this rank's part is taken."""
        name = f"flat parameter of {unit.name}, whole"
        return self._line(Account.GATHERED, name, self.size(unit), (self.how.kept(unit), 0))

    def shard(self, unit: Unit) -> int:
        """What a rank stores of a flat parameter."""
        name = f"flat parameter of {unit.name}"
        return self._line(Account.WEIGHTS, name, self.part(unit), (self.how.kept(unit), 0), self.how.ranks)

    def sent(self, unit: Unit) -> int:
        """What a rank stores of a flat parameter, before it is taken to the host."""
        name = f"flat parameter of {unit.name}, on its way to the host"
        return self._line(Account.GATHERED, name, self.part(unit), (self.how.kept(unit), 0))

    def _line(self, account: Account, name: str, size: int, made: tuple[DType, int], shards: int = 1) -> int:
        dtype, stream = made
        return self.book.made(account, name, (Axis(Dim.ELEMENTS, size),), Made(dtype, FSDP1.source, shards, stream))

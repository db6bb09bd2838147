"""The book: lines as they come up, each once, and a tape's storages written as lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainledger.base.dims import Dims, elements
from trainledger.base.sources import Basis, Source
from trainledger.facts.allocator import CUDA, Allocator
from trainledger.facts.dtypes import DType
from trainledger.ledger.tape import Storage
from trainledger.lines.line import Account, Line

AUTOGRAD = Source(
    "PyTorch autograd: what each operation saves and returns", "tools/autograd/derivatives.yaml", "v2.4 to v2.13"
)


class Book:
    """Lines by what they are; a builder that lives while one estimate is made."""

    __slots__ = ("_index", "allocator", "lines")

    def __init__(self, allocator: Allocator = CUDA) -> None:
        self.allocator = allocator
        self.lines: list[Line] = []
        self._index: dict[tuple[Account, str, int], int] = {}

    def unit(self, size: int) -> int:
        """Bytes of the block that a request of `size` bytes takes."""
        return self.allocator.block(size)

    def add(self, line: Line) -> int:
        """The number of this line; an equal one already there is used again."""
        key = (line.account, line.name, line.unit)
        number = self._index.get(key)
        if number is None:
            number = self._index[key] = len(self.lines)
            self.lines.append(line)
        return number

    def storage(self, account: Account, prefix: str, storage: Storage) -> int:
        """The line of a tape's storage."""
        key = (account, prefix + storage.name, storage.size)
        number = self._index.get(key)
        if number is None:
            number = self._index[key] = len(self.lines)
            unit = self.unit(storage.size)
            self.lines.append(Line(account, key[1], storage.dims, storage.dtype, unit, Basis.COUNTED, AUTOGRAD))
        return number

    def tensor(self, account: Account, name: str, dims: Dims, dtype: DType, source: Source) -> int:
        """The line of one tensor of these dims, rounded as the allocator rounds."""
        unit = self.unit(dtype.bytes_of(elements(dims)))
        return self.add(Line(account, name, dims, dtype, unit, Basis.COUNTED, source))


def translate(events: Iterable[int], line: Callable[[int], int]) -> tuple[int, ...]:
    """A tape's events with storages replaced by lines."""
    return tuple(line(event - 1) + 1 if event > 0 else -line(-event - 1) - 1 for event in events)

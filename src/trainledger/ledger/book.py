"""The book: lines as they come up, each once, and a tape's storages written as lines."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from trainledger.base.dims import Dims, elements
from trainledger.base.sources import Basis, Source
from trainledger.facts.allocator import CUDA
from trainledger.facts.code_read import ACCUMULATE, AUTOGRAD
from trainledger.facts.dtypes import DType
from trainledger.ledger.tape import Storage
from trainledger.lines.line import Account, Duty, Line, Use


class Made(NamedTuple):
    """How a tensor is made: its dtype, the source of its rule, over how many ranks it is spread, on which stream, and
    whether copies go in the order in which they came."""

    dtype: DType
    source: Source
    shards: int = 1
    stream: int = 0
    queued: bool = False


class Book:
    """Lines by what they are; a builder that lives while one estimate is made."""

    __slots__ = ("_index", "lines")

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._index: dict[tuple[Account, str, int], int] = {}

    def add(self, line: Line) -> int:
        """The number of this line; an equal one already there is used again."""
        size = CUDA.rounded(line.dtype.bytes_of(elements(line.dims)))
        key = (line.account, line.name, size)
        number = self._index.get(key)
        if number is None:
            number = self._index[key] = len(self.lines)
            self.lines.append(line)
        return number

    def number(self, account: Account, name: str, size: int) -> int | None:
        """The number of the line of this account, name and rounded size (bytes), where there is one."""
        return self._index.get((account, name, size))

    def storage(self, account: Account, name: str, storage: Storage, why: str = "") -> int:
        """The line of a tape's storage."""
        key = (account, name, storage.size)
        number = self._index.get(key)
        if number is None:
            number = self._index[key] = len(self.lines)
            source = ACCUMULATE if account is Account.GRADIENTS else AUTOGRAD
            line = Line(account, name, storage.dims, storage.dtype, storage.size, storage.basis, source, why)
            duty = Duty.SENT if storage.sent else Duty.HELD
            special = storage.stream or storage.sent
            self.lines.append(replace(line, use=Use(storage.stream, duty=duty)) if special else line)
        return number

    def tensor(self, account: Account, name: str, dims: Dims, dtype: DType, source: Source) -> int:
        """The line of one tensor of these dims, rounded as the allocator rounds."""
        return self.made(account, name, dims, Made(dtype, source))

    def made(self, account: Account, name: str, dims: Dims, how: Made) -> int:
        """The line of one tensor that is spread over ranks or made on another stream than that of compute."""
        unit = CUDA.rounded(how.dtype.bytes_of(elements(dims)))
        number = self._index.get((account, name, unit))
        if number is not None:
            return number
        line = Line(account, name, dims, how.dtype, unit, Basis.COUNTED, how.source)
        return self.add(replace(line, shards=how.shards, use=Use(how.stream, how.queued)))

    def queue(self, number: int) -> None:
        """Copies of this line go in the order in which they come."""
        line = self.lines[number]
        self.lines[number] = replace(line, use=line.use._replace(queued=True))

    def belongs(self, number: int, role: str) -> int:
        """The line, of this role's model."""
        if self.lines[number].role != role:
            self.lines[number] = replace(self.lines[number], role=role)
        return number

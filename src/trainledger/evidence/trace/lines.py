"""A record as lines and segments, the types that the formulas give: so every answer is a fold over it, too.

The allocator is replayed once, so that a line's bytes are those of the block that its tensor really got: rounded, and
with what the allocator did not split off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.allocator.conf import DEFAULT, Conf
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.stream import Builder, Kind, Stream
from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.base.sources import Basis, Source
from trainledger.evidence.trace.record import Birth, Record
from trainledger.facts.dtypes import BF16, BOOL, COMPLEX64, DTYPES, FP16, FP32, FP64, INT8, INT32, INT64, UINT8, DType
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import Moment, Segment, fold

NAMES: dict[str, DType] = {
    "float64": FP64, "float32": FP32, "float16": FP16, "bfloat16": BF16, "int64": INT64, "uint64": INT64,
    "int32": INT32, "int8": INT8, "uint8": UINT8, "bool": BOOL, "complex64": COMPLEX64,
}  # fmt: skip
NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
INSIDE = "kernel: "
UNSURE = "_scaled_dot_product_cudnn"  # what cuDNN's engines ask for beyond its front end is not known


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace as a ledger: lines and segments as a formula's, the record that they came from, and its stream of
    allocations. `reserved`: bytes reserved at the end of each stretch of events, in order, without a bound."""

    lines: tuple[Line, ...]
    segments: tuple[Segment, ...]
    record: Record
    stream: Stream
    reserved: tuple[tuple[str, int], ...]

    @property
    def moments(self) -> tuple[Moment, ...]:
        """Every moment at its largest."""
        return fold(self.lines, self.segments)


def trace_of(record: Record, known: Mapping[int, Dim] | None = None, conf: Conf = DEFAULT) -> Trace:
    """The trace of a record. `known`: names of dims by their size; a size that is not among them counts elements.

    Raises ValueError where the record's events are not those of a program.
    """
    book = _Book(record, dict(known or {}), Simulator(conf))
    segments: list[Segment] = []
    reserved: list[tuple[str, int]] = []
    for moment, events in record.stretches:
        segments.append(Segment(moment, tuple(book.event(event) for event in events)))
        reserved.append((moment, book.simulator.reserved))
    return Trace(tuple(book.lines), tuple(segments), record, book.builder.build(), tuple(reserved))


class _Book:
    """Lines by what they are, filled as the allocator is replayed."""

    def __init__(self, record: Record, known: dict[int, Dim], simulator: Simulator) -> None:
        self.record, self.known, self.simulator = record, known, simulator
        self.builder = Builder()
        self.lines: list[Line] = []
        self._line: dict[int, int] = {}  # by birth that lives: its line
        self._index: dict[tuple[str, str, str, str, tuple[int, ...], int], int] = {}

    def event(self, event: int) -> int:
        """The line's event of a birth's."""
        number = abs(event) - 1
        birth = self.record.births[number]
        if event < 0:
            self.builder.add(Kind.FREE, number + 1)
            self.simulator.free(number + 1)
            return -self._line.pop(number) - 1
        self.builder.add(Kind.ALLOC, number + 1, birth.size, birth.stream)
        self.simulator.alloc(number + 1, birth.size, birth.stream)
        line = self._line[number] = self._of(birth, self.simulator.blocks[number + 1].size)
        return line + 1

    def _of(self, birth: Birth, unit: int) -> int:
        key = (birth.account, NUMBER.sub("*", birth.module), birth.op, birth.dtype, birth.shape, unit)
        number = self._index.get(key)
        if number is None:
            number = self._index[key] = len(self.lines)
            self.lines.append(_line(birth, name_of(birth), self.known, (unit, self.record)))
        return number


def name_of(birth: Birth) -> str:
    """A line's name: the module's path, equal layers alike, and the operation that made it."""
    module = NUMBER.sub("*", birth.module)
    if birth.account in (Account.WEIGHTS, Account.GRADIENTS, Account.BUFFERS, Account.INPUTS):
        return module or birth.op
    return f"{module}: {birth.op}" if module else birth.op


def _line(birth: Birth, name: str, known: Mapping[int, Dim], more: tuple[int, Record]) -> Line:
    unit, record = more
    dtype = NAMES.get(birth.dtype) or DTYPES.get(birth.dtype) or UINT8
    dims = dims_of(birth.shape, known)
    if dtype.bytes_of(elements(dims)) != birth.size:  # a view came first, or a storage of its own length
        dtype, dims = UINT8, (Axis(Dim.ELEMENTS, birth.size),)
    versions = ", ".join(f"{package} {version}" for package, version in sorted(record.versions.items()))
    basis = Basis.ASSUMED if birth.op.startswith(INSIDE + UNSURE) else Basis.COUNTED
    return Line(Account(birth.account), name, dims, dtype, unit, basis, Source("traced operation", birth.op, versions))


def dims_of(shape: tuple[int, ...], known: Mapping[int, Dim]) -> Dims:
    """A shape's dims under the names of their sizes."""
    if not shape:
        return (Axis(Dim.ONE, 1),)
    return tuple(Axis(Dim.ONE if size == 1 else known.get(size, Dim.ELEMENTS), size) for size in shape)

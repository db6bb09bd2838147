"""What clipping and the optimizer's step allocate, over all trained parameters in order.

Sources: torch/nn/utils/clip_grad.py, aten/src/ATen/native/cuda/ForeachReduceOp.cu, and the optimizer's own row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter

from trainledger.base.dims import Axis, Dim, elements
from trainledger.base.sources import Basis
from trainledger.facts.allocator import CUDA
from trainledger.facts.dtypes import FP32, DType
from trainledger.facts.kernels import NORM
from trainledger.facts.optimizer_bytes import StateOptions, dtype_of, shared_tensors, state_bytes
from trainledger.facts.optimizer_kinds import Implementation, Optimizer, Place, Scope, When
from trainledger.ledger.book import Book
from trainledger.lines.line import Account, Line
from trainledger.model.program import Weight


@dataclass(frozen=True, slots=True)
class Parameter:
    """A trained parameter: its weight, its line's name, its dtype, and how many equal ones there are."""

    weight: Weight
    name: str
    dtype: DType
    count: int


Runs = list[tuple[tuple[int, ...], int]]  # events, and how many times in a row


def births(lines: Sequence[tuple[int, int]]) -> Runs:
    """Runs by which that many copies of these lines are born; neighbours of equal counts are one layer, repeated."""
    return [(tuple(line + 1 for line, _ in group), count) for count, group in _layers(lines)]


def deaths(lines: Sequence[tuple[int, int]]) -> Runs:
    """Runs by which that many copies of these lines die."""
    return [(tuple(-line - 1 for line, _ in group), count) for count, group in _layers(lines)]


def _layers(lines: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Iterator[tuple[int, int]]]]:
    return groupby(lines, key=itemgetter(1))


def state_lines(
    book: Book, row: Optimizer, parameters: Sequence[Parameter], how: Callable[[Weight], StateOptions]
) -> list[tuple[int, int]]:
    """Lines of the optimizer's states that lie in the device's allocator, with their copies."""
    result: list[tuple[int, int]] = []
    for parameter in parameters:
        for state in state_bytes(row, parameter.weight.shape, parameter.dtype, how(parameter.weight)):
            if state.place is not Place.DEVICE:
                continue
            name = f"{state.kind.value} {state.part.value} of {parameter.name}"
            dims = parameter.weight.dims if state.elements == elements(parameter.weight.dims) else _flat(state.elements)
            line = Line(
                Account.OPTIMIZER,
                name,
                dims,
                state.dtype,
                CUDA.rounded(state.bytes),
                Basis.COUNTED,
                row.source,
            )
            result.append((book.add(line), parameter.count))
    for table in shared_tensors(row):
        line = Line(
            Account.OPTIMIZER, f"look-up table of {table.kind.value}", _flat(table.elements), table.dtype,
            CUDA.rounded(table.bytes), Basis.COUNTED, row.source,
        )  # fmt: skip
        result.append((book.add(line), 1))
    return result


def managed_bytes(row: Optimizer, parameters: Sequence[Parameter], how: Callable[[Weight], StateOptions]) -> int:
    """Bytes of the optimizer's states of these parameters that lie in managed memory, which no allocator counts."""
    return sum(
        state.bytes * one.count
        for one in (parameters if row.paging is not None else ())
        for state in state_bytes(row, one.weight.shape, one.dtype, how(one.weight))
        if state.place is Place.MANAGED
    )


def _flat(size: int) -> tuple[Axis, ...]:
    return (Axis(Dim.ELEMENTS, size),)


def whole_step(
    book: Book, row: Optimizer, how: Implementation, parameters: Sequence[Parameter]
) -> list[tuple[int, int]]:
    """Lines of the step's temporaries that are made for all parameters at once, with their copies."""
    return [
        (_line(book, parameter, dtype_of(one.width, parameter.dtype, parameter.dtype), row), parameter.count)
        for one in how.temporaries
        if one.scope is Scope.ALL and _applies(one.when, parameters)
        for _ in range(one.count)
        for parameter in parameters
    ]


def _applies(when: When, parameters: Sequence[Parameter]) -> bool:
    if when is When.SIXTEEN_BIT:
        return any(parameter.dtype.bits < FP32.bits for parameter in parameters)
    return when is When.ALWAYS


def _line(book: Book, parameter: Parameter, dtype: DType, row: Optimizer) -> int:
    weight = parameter.weight
    return book.tensor(Account.STEP, f"temporary of {parameter.name}", weight.dims, dtype, row.source)


def one_by_one(book: Book, row: Optimizer, how: Implementation, parameters: Sequence[Parameter]) -> Runs:
    """A loop over parameters, layer by layer: what it makes for the current one, and what still lives of the one
    before: the last that was made, whose name is bound anew in the next turn."""
    current = [one for one in how.temporaries if one.scope is Scope.CURRENT and _applies(one.when, parameters)]
    before = [one for one in how.temporaries if one.scope is Scope.PREVIOUS and _applies(one.when, parameters)]
    if not current:
        return []
    keeps = sum(one.count for one in before)
    runs: Runs = []
    held: list[int] = []
    for count, group in groupby(parameters, key=attrgetter("count")):
        layer = [
            [
                _line(book, parameter, dtype_of(one.width, parameter.dtype, parameter.dtype), row)
                for one in current
                for _ in range(one.count)
            ]
            for parameter in group
        ]
        for line in (line for made in layer for line in made):
            book.queue(line)
        for times in (1, count - 1):  # what still lives when a layer begins is the layer's own from the second one on
            events: list[int] = []
            for made in layer:
                events += [*(line + 1 for line in made), *(-line - 1 for line in (*held, *made[keeps:]))]
                held = made[:keeps]
            runs += [(tuple(events), times)] if times else []
    return [*runs, (tuple(-line - 1 for line in held), 1)]


def clip_events(book: Book, parameters: Sequence[Parameter]) -> Runs:
    """The norm of all gradients by foreach kernels: one partial sum per chunk of the largest tensor, for every tensor,
    and one scalar per tensor."""
    count = sum(parameter.count for parameter in parameters)
    if not count:
        return []
    largest = max(elements(parameter.weight.dims) for parameter in parameters)
    dtype = parameters[0].dtype
    partial = book.tensor(
        Account.CLIP, "partial sums of gradient norms", _flat(count * -(-largest // NORM.chunk)), FP32, NORM.source
    )
    scalar = book.tensor(Account.CLIP, "norm of one gradient", _flat(1), dtype, NORM.source)
    return [((partial + 1,), 1), *births([(scalar, count)]), ((-partial - 1,), 1), *deaths([(scalar, count)])]

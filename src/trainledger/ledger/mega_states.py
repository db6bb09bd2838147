"""Model states of one rank under Megatron-Core: weights, the buffers of gradients and weights, the optimizer's own.

Source: megatron/core/distributed/param_and_grad_buffer.py; optimizer/{distrib_optimizer,optimizer}.py (0.19.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.base.problems import InputError, Problem
from trainledger.facts.code_read import MODELS
from trainledger.facts.dtypes import DTYPES, FP32, DType
from trainledger.facts.megatron import OPTIMIZER
from trainledger.ledger.book import Book, Made
from trainledger.ledger.mega_buffers import DISTRIBUTED
from trainledger.ledger.mega_fp8 import own_dtype
from trainledger.ledger.step import Updates
from trainledger.ledger.updates import Parameter, Runs, births, deaths, one_by_one, state_lines, whole_step
from trainledger.lines.line import Account
from trainledger.lines.param_buffers import Buffer, Wrap, buffers
from trainledger.lines.param_buffers import Parameter as Placed
from trainledger.lines.param_ranges import shard
from trainledger.model.program import Role, Weight
from trainledger.plan.schema import Plan

Copies = list[tuple[int, int]]


class Piece(NamedTuple):
    """A parameter, or a part of one, that the optimizer updates: its name, dims, and what its weight is for."""

    name: str
    dims: Dims
    role: Role

    @property
    def size(self) -> int:
        """Elements."""
        return elements(self.dims)

    @property
    def weight(self) -> Weight:
        """As a weight."""
        return Weight(self.name, self.dims, self.role)


@dataclass(frozen=True, slots=True)
class Kept:
    """How states are kept: dtypes of weights, of the gradient buffer, of master weights (None: there are none); whether
    weights lie in buffers, too."""

    weights: DType
    gradients: DType
    master: DType | None
    buffered: bool

    @classmethod
    def of(cls, plan: Plan) -> Kept:
        """As the plan says."""
        precision = plan.precision
        weights, gradients = own_dtype(plan), DTYPES[precision.gradients]
        master = DTYPES[precision.master] if precision.master and weights != FP32 else None
        return cls(weights, gradients, master, plan.parallel.strategy == DISTRIBUTED)


class States:
    """Births of a rank's states, and the optimizer's step. `place`: the rank's number in its data-parallel group."""

    def __init__(self, book: Book, kept: Kept, updates: Updates, place: int = 0) -> None:
        self.book, self.kept, self.updates, self.place = book, kept, updates, place
        self.weights: list[tuple[Weight, Placed]] = []
        self.buffers: list[Buffer] = []

    def add(self, weights: Sequence[tuple[Weight, Placed]], wrap: Wrap) -> None:
        """One model chunk: its parameters as they are built, and how it is wrapped."""
        self.weights += weights
        self.buffers += buffers([placed for _, placed in weights], wrap)

    def build(self) -> Runs:
        """Weights are built, gathered into buffers, and the optimizer's master weights are made of them."""
        own, moved = self._own(False), self._own(True)
        own_of = {placed.name: (weight, placed) for weight, placed in self.weights}
        found = [*births(own), *((self._narrowed(line), count) for line, count in moved)]
        for buffer in self.buffers:
            if buffer.weight_bytes:
                found += births([(self._buffer(Account.WEIGHTS, "weight buffer", buffer, buffer.weights), 1)])
            found += births([(self._buffer(Account.GRADIENTS, "gradient buffer", buffer, buffer.gradients), 1)])
            if self.kept.buffered:  # each weight's own tensor goes as it lies in the buffer
                found += deaths([(self._line(own_of[one.parameter.name]), 1) for one in buffer.placed])
        if self.kept.master is not None:
            found.append((self._raised_up(self.kept.master), 1))
        return found

    def _raised_up(self, dtype: DType) -> tuple[int, ...]:
        """Births of master weights one after the other, each made of a copy of the weight that is gone then."""
        made: list[int] = []
        masters = self._masters(Account.MASTER, "master weights of ", dtype)
        for (line, _), one in zip(masters, self._ordered(), strict=True):
            name = f"copy of {one.name} that becomes its master"
            copy = self.book.tensor(Account.WEIGHTS, name, one.weight.dims, self.kept.weights, OPTIMIZER)
            made += copy + 1, line + 1, -copy - 1
        return tuple(made)

    def step(self, first: bool) -> Runs:
        """One optimizer step; at the first the states appear."""
        book, updates = self.book, self.updates
        found, parameters = births(self.copies()), self.parameters()
        if first:
            found += births(state_lines(book, updates.row, self._ordered(), updates.options))
        how = updates.row.implementation(updates.implementation)
        taken = [one for one in parameters if updates.takes(one.weight)]
        made = whole_step(book, updates.row, how, taken)
        return [*found, *births(made), *deaths(made), *one_by_one(book, updates.row, how, taken)]

    def copies(self) -> Copies:
        """Gradients in fp32 that the optimizer reads where the buffer has others: they stay until the next step."""
        if self.kept.master is None or self.kept.gradients == FP32:
            return []
        return self._masters(Account.GRADIENTS, "fp32 gradient of ", FP32)

    def parameters(self) -> tuple[Parameter, ...]:
        """What the optimizer updates: pieces of the buffers, or every weight; equal ones of equal layers together."""
        dtype = self.kept.master or self.kept.weights
        return tuple(Parameter(one.weight, one.name, dtype, count) for one, count in Counter(self._owned()).items())

    def _ordered(self) -> list[Parameter]:
        """The same one by one, in their order: a layer's stand together."""
        dtype = self.kept.master or self.kept.weights
        return [Parameter(one.weight, one.name, dtype, 1) for one in self._owned()]

    def _owned(self) -> Iterable[Piece]:
        """Each piece that this rank updates."""
        own = {placed.name: weight for weight, placed in self.weights}
        for buffer in self.buffers:
            if buffer.distributed:
                for piece in shard(buffer, self.place % buffer.ranks):
                    dims = (Axis(Dim.ELEMENTS, piece.world.size),)
                    yield Piece(pattern(piece.parameter.name), dims, Role.MATRIX)
                continue
            for placed in reversed(buffer.placed):  # which lie in the order of backward
                weight = own[placed.parameter.name]
                yield Piece(pattern(placed.parameter.name), weight.dims, weight.role)

    def _narrowed(self, line: int) -> tuple[int, ...]:
        """Births of a weight that comes to the device from the host in fp32, and is cast there."""
        own = self.book.lines[line]
        if self.kept.weights == FP32:
            return (line + 1,)
        wide = self.book.tensor(Account.WEIGHTS, f"{own.name} before its cast", own.dims, FP32, OPTIMIZER)
        return (wide + 1, line + 1, -wide - 1)

    def _own(self, moved: bool | None = None) -> Copies:
        """Every weight's own tensor, as they are built; `moved`: only of those that are built on the host, as
        torch.nn.Embedding is, or of the others."""
        return [
            (self._line(one), 1) for one in self.weights if moved is None or (one[0].role is Role.POSITION) is moved
        ]

    def _line(self, one: tuple[Weight, Placed]) -> int:
        weight, placed = one
        made = Made(placed.stored or self.kept.weights, MODELS)
        return self.book.made(Account.WEIGHTS, pattern(placed.name), weight.dims, made)

    def _buffer(self, account: Account, name: str, buffer: Buffer, dtype: DType) -> int:
        shown = f"{name} of experts" if buffer.expert else name
        return self.book.made(account, shown, (Axis(Dim.ELEMENTS, buffer.elements),), Made(dtype, OPTIMIZER))

    def _masters(self, account: Account, name: str, dtype: DType) -> Copies:
        return [
            (self.book.tensor(account, name + one.name, one.weight.dims, dtype, OPTIMIZER), one.count)
            for one in self._ordered()
        ]


@contextmanager
def stops() -> Iterator[None]:
    """What Megatron-Core's own code stops at while buffers are laid out, as a problem of the plan."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        need = "Megatron-Core stops where it lays parameters in buffers"
        raise InputError([Problem("parallel.options", str(error), need)]) from None


def pattern(name: str) -> str:
    """A parameter's name with `*` for its layer's number."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))

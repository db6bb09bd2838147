"""Megatron-Core's optimizer on the host: pieces of the buffers whose master weights, gradients and states lie there.

Pieces go to the host in their order until the asked share of all elements has gone. Of each the host keeps a master
weight and the states, pageable, and a page-locked copy of its gradient from the first step on; the device keeps none of
them. A gradient in another dtype is cast on the device on its way.
Source: megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py, HybridDeviceOptimizer (0.12 to 0.19).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from trainledger.facts.dtypes import FP32
from trainledger.facts.megatron_offload import FRACTION, HYBRID, PINS
from trainledger.facts.optimizer_bytes import state_bytes
from trainledger.facts.optimizer_kinds import Kind
from trainledger.ledger.book import Book, Made
from trainledger.ledger.host import Lines, host_line
from trainledger.ledger.mega_states import Kept, Piece, States
from trainledger.ledger.step import Updates
from trainledger.ledger.updates import Runs
from trainledger.lines.line import Account, Line
from trainledger.plan.schema import Plan


def fraction_of(plan: Plan) -> float:
    """Which share of the optimizer's elements lies on the host: 0 where none does."""
    if plan.offload.optimizer is None:
        return 0.0
    return float(plan.parallel.options.get(FRACTION, HYBRID.fraction))


def hosted(pieces: Sequence[Piece], fraction: float) -> tuple[list[Piece], list[Piece]]:
    """The pieces that go to the host, and those that stay: one goes while fewer elements than the share have gone."""
    threshold = sum(one.size for one in pieces) * fraction
    before = [0, *accumulate(one.size for one in pieces)]
    count = sum(gone < threshold for gone in before[:-1])
    return list(pieces[:count]), list(pieces[count:])


class Hybrid(States):
    """States of which a share lies on the host."""

    def __init__(self, book: Book, kept: Kept, updates: Updates, fraction: float) -> None:
        super().__init__(book, kept, updates)
        self.fraction = fraction

    def _owned(self) -> Iterable[Piece]:
        """What stays on the device."""
        return hosted(list(super()._owned()), self.fraction)[1]

    def step(self, first: bool) -> Runs:
        """Gradients go to the host, each cast on the device first where the buffer has another dtype; then the step of
        what stayed."""
        cast = [] if self.kept.gradients == FP32 else self._gone()
        found: Runs = []
        for one in dict.fromkeys(cast):
            name = f"fp32 gradient of {one.name} on its way"
            line = self.book.made(Account.STEP, name, one.dims, Made(FP32, HYBRID.source))
            found.append(((line + 1, -line - 1), 1))
        return [*found, *super().step(first)]

    def _gone(self) -> list[Piece]:
        return hosted(list(super()._owned()), self.fraction)[0]

    def host(self, pinned: bool) -> Lines:
        """Lines of what lies on the host, with their copies. `pinned`: gradients are page-locked."""
        return tuple(
            (replace(line, source=HYBRID.source), count)
            for one, count in Counter(self._gone()).items()
            for line in self._of(one, pinned)
        )

    def _of(self, piece: Piece, pinned: bool) -> Iterator[Line]:
        name, size, weight, master = piece.name, piece.size, piece.weight, self.kept.master or FP32
        yield host_line(Account.MASTER, f"master weights of {name}", size, master)
        yield host_line(Account.GRADIENTS, f"gradient of {name}", size, master, pinned)
        for state in state_bytes(self.updates.row, weight.shape, master, self.updates.options(weight)):
            if state.kind is not Kind.STEP:
                named = f"{state.kind.value} {state.part.value} of {name}"
                yield host_line(Account.OPTIMIZER, named, state.elements, state.dtype)


def pins(plan: Plan) -> bool:
    """Whether gradients on the host are page-locked."""
    return bool(plan.parallel.options.get(PINS, True))

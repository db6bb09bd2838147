"""Megatron-Core's layer-wise optimizer: whole parameters go to data-parallel ranks, of which each updates its own.

Without a layout of its own, parameters are sorted by size and dealt out there and back, and the buffers are those of no
distributed optimizer; with one, matrices go to the rank that has least, and all others are divided as the distributed
optimizer divides them. Ranks differ: the fullest is counted.
Source: megatron/core/optimizer/layer_wise_optimizer.py, LayerWiseDistributedOptimizer; training/training.py,
wrap_model_chunks_with_ddp (2026-08).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.megatron import LAYER_WISE
from trainledger.ledger.book import Book
from trainledger.ledger.mega_states import Kept, Piece, States, pattern
from trainledger.ledger.step import Updates
from trainledger.lines.param_buffers import Parameter as Placed
from trainledger.lines.param_buffers import Wrap
from trainledger.model.program import Role, Weight
from trainledger.plan.schema import Plan

Size = Callable[[Piece], int]


def layer_wise(plan: Plan) -> bool:
    """Whether whole parameters are spread over ranks: what the distributed optimizer is for one that takes matrices."""
    return plan.optimizer.name in LAYER_WISE.optimizers and plan.parallel.strategy == LAYER_WISE.strategy


def laid_out(plan: Plan) -> bool:
    """Whether the buffers are laid out for it."""
    return bool(plan.parallel.options.get(LAYER_WISE.option, LAYER_WISE.laid_out))


class LayerWise(States):
    """States of which each rank keeps those of whole parameters. `how`: whether the buffers are made for it; the rank's
    numbers among those that share dense parameters, and experts (None: the fullest)."""

    def __init__(self, book: Book, kept: Kept, updates: Updates, how: tuple[bool, tuple[int, int] | None]) -> None:
        super().__init__(book, replace(kept, buffered=how[0]), updates)
        self.laid_out, self.places = how
        self.ranks: dict[bool, int] = {}  # data-parallel ranks of dense parameters, and of experts

    def add(self, weights: Sequence[tuple[Weight, Placed]], wrap: Wrap) -> None:
        """One model chunk."""
        super().add(weights, wrap if self.laid_out else replace(wrap, distributed=False))
        self.ranks = {expert: max(wrap.shards(expert), 1) for expert in (False, True)}

    def _owned(self) -> Iterable[Piece]:
        """What the rank updates."""
        found: list[Piece] = []
        for expert in (False, True):
            mine = [one for one in self.weights if (one[0].role is Role.EXPERT) is expert]
            pieces = [Piece(pattern(placed.name), weight.dims, weight.role) for weight, placed in mine]
            found += self._share(pieces, expert)
        return found

    def _share(self, pieces: Sequence[Piece], expert: bool) -> list[Piece]:
        ranks = self.ranks.get(expert, 1)
        if not self.laid_out:
            return self._mine(dealt(pieces, ranks), expert)
        own = [one for one in pieces if self.updates.takes(one.weight)]
        rest = sum(one.size for one in pieces if not self.updates.takes(one.weight))
        flat = Piece("other parameters", (Axis(Dim.ELEMENTS, -(-rest // ranks)),), Role.NORM)
        return [*self._mine(packed(own, ranks), expert), *([flat] if rest else [])]

    def _mine(self, shares: Sequence[list[Piece]], expert: bool) -> list[Piece]:
        return max(shares, key=self._bytes) if self.places is None else shares[self.places[expert] % len(shares)]

    def _bytes(self, pieces: Sequence[Piece]) -> int:
        """Sizes, those of two states counted once more."""
        return sum(one.size * (1 + (not self.updates.takes(one.weight))) for one in pieces)


def dealt(pieces: Sequence[Piece], ranks: int) -> list[list[Piece]]:
    """By size, to ranks from first to last and back again."""
    found: list[list[Piece]] = [[] for _ in range(ranks)]
    turns = [*range(ranks), *reversed(range(ranks))]
    for at, one in enumerate(sorted(pieces, key=lambda one: one.size)):
        found[turns[at % len(turns)]].append(one)
    return found


def packed(pieces: Sequence[Piece], ranks: int) -> list[list[Piece]]:
    """The largest first, each to the rank that has least."""
    found: list[list[Piece]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for one in sorted(pieces, key=lambda one: -one.size):
        least = loads.index(min(loads))
        loads[least] += one.size
        found[least].append(one)
    return found

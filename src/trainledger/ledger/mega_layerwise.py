"""Megatron-Core's layer-wise optimizer: whole parameters go to data-parallel ranks, of which each updates its own.

Without a layout of its own, parameters are sorted by size and dealt out there and back, and the buffers are those of no
distributed optimizer; with one, matrices are packed into shards of a buffer, all others divided as the distributed
optimizer divides them, each kind in a buffer of its own. Ranks differ: the fullest is counted.
Source: megatron/core/optimizer/layer_wise_optimizer.py, LayerWiseDistributedOptimizer; training/training.py,
wrap_model_chunks_with_ddp (2026-08).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from trainledger.base.dims import Axis, Dim
from trainledger.ledger.book import Book
from trainledger.ledger.mega_states import Kept, Piece, States, pattern
from trainledger.ledger.step import Updates
from trainledger.lines.param_buffers import Parameter as Placed
from trainledger.lines.param_buffers import Wrap
from trainledger.lines.param_ranges import shard
from trainledger.model.program import Role, Weight

Size = Callable[[Piece], int]


class LayerWise(States):
    """States of which each rank keeps those of whole parameters. `how`: whether the buffers are made for it; the rank's
    numbers among those that share dense parameters, and experts (None: the fullest)."""

    def __init__(self, book: Book, kept: Kept, updates: Updates, how: tuple[bool, tuple[int, int] | None]) -> None:
        super().__init__(book, replace(kept, buffered=how[0]), updates)
        self.laid_out, self.places = how
        self.ranks: dict[bool, int] = {}  # data-parallel ranks of dense parameters, and of experts

    def add(self, weights: Sequence[tuple[Weight, Placed]], wrap: Wrap) -> None:
        """One model chunk."""
        super().add(weights, wrap)
        self.ranks = {expert: max(wrap.shards(expert), 1) for expert in (False, True)}

    def _owned(self) -> Iterable[Piece]:
        """What the rank updates."""
        found: list[Piece] = []
        for expert in (False, True):
            ranks = self.ranks.get(expert, 1)
            if self.laid_out:
                found += self._laid_out(expert, ranks)
            else:
                found += self._mine(dealt([one for one, _ in self._pieces(expert)], ranks), expert)
        return found

    def _pieces(self, expert: bool) -> list[tuple[Piece, Placed]]:
        return [
            (Piece(pattern(placed.name), weight.dims, weight.role), placed)
            for weight, placed in self.weights
            if placed.expert is expert
        ]

    def _laid_out(self, expert: bool, ranks: int) -> list[Piece]:
        """Whole parameters as the buffers' shards have them, and an equal part of all others."""
        pieces = self._pieces(expert)
        own = {placed.name: piece for piece, placed in pieces if placed.rows}
        rest = sum(piece.size for piece, placed in pieces if not placed.rows)
        flat = Piece("other parameters", (Axis(Dim.ELEMENTS, -(-rest // ranks)),), Role.NORM)
        shares: list[list[Piece]] = [[] for _ in range(ranks)]
        for buffer in self.buffers:
            if buffer.whole and buffer.expert is expert:
                for at, share in enumerate(shares):
                    share += [own[one.parameter.name] for one in shard(buffer, at)]
        return [*self._mine(shares, expert), *([flat] if rest else [])]

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

"""FSDP2's settings: the dtypes and ranks of its shards, and which part of a weight a rank holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from trainledger.base.dims import Dims
from trainledger.facts.dtypes import DType
from trainledger.lines.shards import rows_at, rows_of, with_columns, with_rows
from trainledger.model.program import Role, Weight
from trainledger.model.quantised import parameter_of


class Ending(StrEnum):
    """Where the loss is made of the last hidden states."""

    FUSED = "fused"  # in a function that reads the head's weight, which is not called as a module
    INSIDE = "inside"  # in the model's own forward, out of its head's result
    OUTSIDE = "outside"  # by the script, once the model's forward has returned


class Routed(NamedTuple):
    """How routed experts are sharded: over how many ranks, and whether along their second dim, which these divide;
    whether layers are gathered one ahead in forward, for experts on other ranks."""

    ranks: int
    by_width: bool
    ahead: bool


class Reduced(NamedTuple):
    """How gradients are reduced: whether a reduction's input stays until the next one; whether an all-reduce holds what
    it reads; whether the gradient of a table of which a rank has a part is cut to that part before; whether the last
    gradient of a unit stays until its reduction has been asked for; whether an all-reduce over replicas follows, on
    whose stream what comes after it is made."""

    holds_input: bool
    holds_output: bool
    cuts: bool
    holds_last: bool
    replicated: bool


@dataclass(frozen=True, slots=True)
class How:
    """FSDP2's settings: ranks of one shard group; dtypes of shards, of what is gathered, of reductions; over how many
    ranks weights are kept between forward and backward (0: as the shards themselves, 1: gathered), and whether the root
    stays gathered; how gradients are reduced; whether layers are recomputed by a forward of their own (reentrant);
    where the loss is made; the rank within its group that is looked at; whether shards and reduced gradients lie in the
    host's memory; how routed experts are sharded (None: as all else)."""

    ranks: int
    stored: DType
    compute: DType
    reduce: DType
    between: int
    root_keeps: bool
    reduced: Reduced
    reentrant: bool
    ending: Ending
    rank: int = 0
    offload: bool = False
    routed: Routed | None = None

    @property
    def ahead(self) -> bool:
        """Whether layers are gathered one ahead in forward."""
        return self.routed is not None and self.routed.ahead

    def _dims(self, weight: Weight) -> Dims:
        """The dims that are sharded: of a packed weight those of its codes."""
        return parameter_of(weight, self.stored)[0]

    def kept(self, weight: Weight) -> DType:
        """The dtype of a weight's shards."""
        return parameter_of(weight, weight.dtype or self.stored)[1]

    def summed(self, weights: Sequence[Weight]) -> DType:
        """The dtype of these weights' gradients once they are reduced: that of the shards that are trained."""
        return next((self.kept(one) for one in weights if one.tuned), self.stored)

    def ranks_of(self, weight: Weight) -> int:
        """Ranks that one weight is sharded over."""
        return self.routed.ranks if self.routed and weight.role is Role.EXPERT else self.ranks

    def by_width(self, weight: Weight) -> bool:
        """Whether a weight is sharded along its second dim."""
        return bool(self.routed and self.routed.by_width and weight.role is Role.EXPERT)

    def held(self, weight: Weight) -> Dims:
        """The part of the fullest rank."""
        dims, ranks = self._dims(weight), self.ranks_of(weight)
        if self.by_width(weight):
            return with_columns(dims, dims[1].size // ranks)
        return with_rows(dims, rows_of(dims[0].size, ranks))

    def own(self, weight: Weight) -> Dims:
        """The part of the rank that is looked at."""
        dims, ranks = self._dims(weight), self.ranks_of(weight)
        if self.by_width(weight):
            return with_columns(dims, dims[1].size // ranks)
        return with_rows(dims, rows_at(dims[0].size, ranks, self.rank % ranks))

    def whole(self, weight: Weight) -> Dims:
        """All ranks' parts, with the padding of the last ones."""
        dims, ranks = self._dims(weight), self.ranks_of(weight)
        return dims if self.by_width(weight) else with_rows(dims, rows_of(dims[0].size, ranks) * ranks)

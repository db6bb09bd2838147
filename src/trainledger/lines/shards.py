"""The part of a tensor that one rank holds: the one place where sharding is looked up from dims."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dims


def rows_of(size: int, ranks: int) -> int:
    """Rows of the fullest of `ranks` over which `size` rows are spread (torch.chunk: equal parts, the last smaller)."""
    return -(-size // ranks)


def rows_at(size: int, ranks: int, rank: int) -> int:
    """Rows of this rank; 0 where the ranks before it have them all."""
    rows = rows_of(size, ranks)
    return max(min(rows, size - rank * rows), 0)


def with_rows(dims: Dims, rows: int) -> Dims:
    """The dims with another size of the first."""
    return (Axis(dims[0].dim, rows), *dims[1:]) if dims else dims

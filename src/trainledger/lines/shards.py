"""The part of a tensor that one rank holds: the one place where sharding is looked up from dims."""

from __future__ import annotations

from collections.abc import Iterable

from trainledger.base.dims import Axis, Dims


def rows_of(size: int, ranks: int) -> int:
    """Rows of the fullest of `ranks` over which `size` rows are spread (torch.chunk: equal parts, the last smaller)."""
    return -(-size // ranks)


def rows_at(size: int, ranks: int, rank: int) -> int:
    """Rows of this rank; 0 where the ranks before it have them all."""
    rows = rows_of(size, ranks)
    return max(min(rows, size - rank * rows), 0)


def classes(sizes: Iterable[int], ranks: int) -> tuple[tuple[int, int], ...]:
    """Runs of ranks (first, last) that hold as many rows of every one of tensors with so many rows."""
    starts = {0}
    for size in sizes:
        full = size // rows_of(size, ranks)
        starts |= {full, full + bool(size % rows_of(size, ranks))}
    inside = sorted(start for start in starts if start < ranks)
    return tuple((first, after - 1) for first, after in zip(inside, [*inside[1:], ranks], strict=True))


def with_rows(dims: Dims, rows: int) -> Dims:
    """The dims with another size of the first."""
    return (Axis(dims[0].dim, rows), *dims[1:]) if dims else dims


def with_columns(dims: Dims, columns: int) -> Dims:
    """The dims with another size of the second."""
    return (dims[0], Axis(dims[1].dim, columns), *dims[2:])

"""Which part of a tensor a rank holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainledger.base.dims import Axis, Dim
from trainledger.lines.shards import classes, rows_at, rows_of, with_columns, with_rows

sizes = st.integers(1, 100_000)
ranks = st.integers(1, 512)


def test_as_torch_chunk_spreads_rows() -> None:
    assert [rows_at(10, 4, rank) for rank in range(4)] == [3, 3, 3, 1]
    assert [rows_at(5, 4, rank) for rank in range(4)] == [2, 2, 1, 0]
    assert [rows_at(2, 4, rank) for rank in range(4)] == [1, 1, 0, 0]


@given(sizes, ranks)
def test_ranks_hold_every_row_once_and_the_first_is_the_fullest(size: int, count: int) -> None:
    rows = [rows_at(size, count, rank) for rank in range(count)]
    assert sum(rows) == size
    assert rows[0] == rows_of(size, count) == max(rows)
    assert (len(set(rows)) == 1) == (size % count == 0)


@given(st.lists(sizes, min_size=1, max_size=4), st.integers(1, 64))
def test_classes_are_ranks_that_hold_the_same(tensors: list[int], count: int) -> None:
    found = classes(tensors, count)
    assert [rank for first, last in found for rank in range(first, last + 1)] == list(range(count))
    held = [tuple(rows_at(size, count, rank) for size in tensors) for rank in range(count)]
    assert all(len({held[rank] for rank in range(first, last + 1)}) == 1 for first, last in found)


def test_other_rows_leave_the_other_dims() -> None:
    dims = (Axis(Dim.VOCAB, 10), Axis(Dim.HIDDEN, 4))
    assert with_rows(dims, 3) == (Axis(Dim.VOCAB, 3), Axis(Dim.HIDDEN, 4))
    assert with_rows((), 3) == ()


def test_columns_are_those_of_the_second_dim() -> None:
    dims = (Axis(Dim.EXPERTS, 8), Axis(Dim.FFN, 64), Axis(Dim.HIDDEN, 16))
    assert with_columns(dims, 4) == (dims[0], Axis(Dim.FFN, 4), dims[2])

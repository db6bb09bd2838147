"""Aligned columns."""

from __future__ import annotations

from trainledger.show.listing import columns


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = columns(("name", "size"), [("a", "1"), ("longer", "1,000")], right=(1,))
    assert text.splitlines() == ["name     size", "a           1", "longer  1,000"]


def test_nothing_trails() -> None:
    assert columns(("a", "b"), [("long", "")]).splitlines() == ["a     b", "long"]


def test_no_rows_leave_the_header() -> None:
    assert columns(("a", "b"), []) == "a  b"

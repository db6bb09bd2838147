"""Sizes and counts as they are written."""

from __future__ import annotations

import pytest

from trainledger.base.units import GIB, KB, parse_count, parse_size


@pytest.mark.parametrize(
    ("text", "count"),
    [("7B", 7 * KB**3), ("7.5B", 7_500_000_000), ("5e12", 5 * KB**4), ("1,024", 1024), (8e9, 8 * KB**3)],
)
def test_a_count(text: str | float, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["7.5", 7.5, "0.5", "1e-3"])
def test_a_part_of_one_is_no_count(text: str | float) -> None:
    with pytest.raises(ValueError, match="a count without a unit is one"):
        parse_count(text)


def test_a_part_of_a_byte_is_no_size() -> None:
    assert parse_size("79.5 GiB") == 159 * GIB // 2
    for text in ("79.5", 79.5, "79.5B"):
        with pytest.raises(ValueError, match="a size without a unit is one"):
            parse_size(text)

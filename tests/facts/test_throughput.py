"""Speeds belong to devices that a plan can name, and no 8-bit peak is below the 16-bit one."""

from __future__ import annotations

import pytest

from trainledger.facts.devices import find_device
from trainledger.facts.throughput import THROUGHPUT, Throughput


@pytest.mark.parametrize("row", THROUGHPUT.values(), ids=lambda row: row.name)
def test_a_row_is_of_a_known_device(row: Throughput) -> None:
    assert find_device(row.name).name == row.name
    assert row.peak_low >= row.peak > row.link > 0
    assert row.link >= row.network > 0
    assert row.domain >= 1

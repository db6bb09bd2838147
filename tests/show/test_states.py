"""The table of model states by recipe: bytes of each copy, and what all come to."""

from __future__ import annotations

import pytest

from trainledger.answer.states import states
from trainledger.show.states import HEAD, bytes_table

SEVEN = 7 * 10**9


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("mixed", ("16", "2", "2", "4", "4 + 4", "112.00", "104.31", "0.11", "0.10")),
        ("fp16-fp32maingrad", ("20", "2", "2 + 4", "4", "4 + 4", "140.00", "130.39", "0.14", "0.13")),
        ("fp32-sgd", ("8", "4", "4", "0", "0", "56.00", "52.15", "0.06", "0.05")),
    ],
)
def test_each_copy_has_its_bytes(name: str, cells: tuple[str, ...]) -> None:
    head, rows = bytes_table(states(SEVEN, (name,)))
    assert head == HEAD
    assert rows == ((name, *cells),)

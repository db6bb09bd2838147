"""Whole-number arithmetic of a shell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.importers.reckoning import reckoned

HELD = {"A": "8", "B": "$((A * 2))", "LOOP": "$((LOOP + 1))", "T": "text"}.get


@pytest.mark.parametrize(
    "text, value",
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("$A / 3", 2), ("${A} % 3", 2), ("B - A", 8), ("-A + 10", 2),
        ("A / 0", None), ("C", None), ("T", None), ("1 +", None), ("", None), ("LOOP", None), ("1 2", None),
        ("-7 / 2", -3), ("-7 % 2", -1), ("7 / -2", -3),  # bash: towards 0, with the dividend's sign
        ("9" * 18 + " * 99", None), ("(" * 500, None), ("A ** 2", None), ("1 << 3", None),
    ],
)  # fmt: skip
def test_values(text: str, value: int | None) -> None:
    assert reckoned(text, HELD) == value


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**3))
def test_it_is_whole_number_arithmetic(a: int, b: int, c: int) -> None:
    assert reckoned(f"({a} + {b}) / {c} - {a} * {c} % {c}", HELD) == (a + b) // c - a * c % c


@given(st.text(alphabet="0123456789+-*/%()$AB {}", max_size=60))
def test_any_text_is_a_number_or_none(text: str) -> None:
    assert reckoned(text, HELD) is None or isinstance(reckoned(text, HELD), int)

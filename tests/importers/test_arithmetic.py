"""`$((...))` worked out without a shell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.importers.arithmetic import value_of, worked_out
from trainledger.importers.shell_words import Word

ENV = {"A": Word("8", ""), "B": Word("$((A * 2))", ""), "LOOP": Word("$((LOOP + 1))", ""), "T": Word("text", "")}


@pytest.mark.parametrize(
    "text, value",
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("$A / 3", 2), ("${A} % 3", 2), ("B - A", 8), ("-A + 10", 2),
        ("A / 0", None), ("C", None), ("T", None), ("1 +", None), ("", None), ("LOOP", None), ("1 2", None),
        ("9" * 18 + " * 99", None), ("(" * 500, None), ("A ** 2", None), ("1 << 3", None),
    ],
)  # fmt: skip
def test_values(text: str, value: int | None) -> None:
    assert value_of(text, ENV) == value


def test_words_that_were_split_at_spaces_are_joined() -> None:
    words = [Word("--n", "f:1"), Word("$((A", "f:1", False), Word("*", "f:1", False), Word("4))x", "f:1", False)]
    assert [word.text for word in worked_out(words, ENV)] == ["--n", "32x"]


def test_what_is_not_known_stays() -> None:
    assert worked_out([Word("$((C))", "f:1", False)], ENV)[0].text == "$((C))"


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**3))
def test_it_is_whole_number_arithmetic(a: int, b: int, c: int) -> None:
    assert value_of(f"({a} + {b}) / {c} - {a} * {c} % {c}", {}) == (a + b) // c - a * c % c


@given(st.text(alphabet="0123456789+-*/%()$AB {}", max_size=60))
def test_any_text_is_a_number_or_none(text: str) -> None:
    assert value_of(text, ENV) is None or isinstance(value_of(text, ENV), int)

"""`$((...))` in words, worked out without a shell."""

from __future__ import annotations

from trainledger.importers.arithmetic import value_of, worked_out
from trainledger.importers.shell_words import Word

ENV = {"A": Word("8", ""), "B": Word("$((A * 2))", "")}


def test_values_of_variables() -> None:
    assert value_of("B - A", ENV) == 8
    assert value_of("C", ENV) is None


def test_words_that_were_split_at_spaces_are_joined() -> None:
    words = [Word("--n", "f:1"), Word("$((A", "f:1", False), Word("*", "f:1", False), Word("4))x", "f:1", False)]
    assert [word.text for word in worked_out(words, ENV)] == ["--n", "32x"]


def test_what_is_not_known_stays() -> None:
    assert worked_out([Word("$((C))", "f:1", False)], ENV)[0].text == "$((C))"

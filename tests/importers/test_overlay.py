"""Flags of a command line, and what they change in a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow
from trainledger.importers.document import Document
from trainledger.importers.overlay import Change, fill, flags, ordinal, overlay, referred, value_of
from trainledger.importers.piece import Piece
from trainledger.importers.script import parse_script


def changes(line: str) -> dict[str, Any]:
    (command,) = parse_script(line, "x.sh", {}).commands
    return {one.key: one.value for one in flags(command.words)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run --a 1 --b=2.5 --c", {"a": 1, "b": 2.5, "c": True}),
        ("run --a.b-c x y --d", {"a.b_c": ["x", "y"], "d": True}),
        ("run --no-a --b.no-c --d.no_e", {"a": False, "b.c": False, "d.e": False}),
        ("run first --a null --b '[1, 2]' --c 'x: y: z'", {"a": None, "b": [1, 2], "c": "x: y: z"}),
        ("run --a -1 --b= \"$@\"", {"a": -1, "b": None}),
    ],
)  # fmt: skip
def test_flags(line: str, expected: dict[str, Any]) -> None:
    assert changes(line) == expected


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1e-3", 0.001), ("a b", "a b"), ("{", "{"), ("#x", "#x")])
def test_a_value_is_yaml_or_its_text(text: str, value: Any) -> None:
    assert value_of(text) == value


def test_a_change_replaces_what_is_below_it_and_its_place() -> None:
    document = Document({"a": {"b": 1}, "c": 2}, {("a",): "f:1", ("a", "b"): "f:2", ("c",): "f:3"})
    changed = overlay(document, [Change("a", 5, "x:1"), Change("c.d", 6, "x:2")])
    assert changed.data == {"a": 5, "c": {"d": 6}}
    assert changed.places == {("a",): "x:1", ("c",): "f:3", ("c", "d"): "x:2"}
    assert document.data == {"a": {"b": 1}, "c": 2}


def test_a_value_may_name_another() -> None:
    data = {"a": 4, "b": "${a}", "c": {"d": "${b}", "e": ["${a}"]}, "f": "${g}", "h": "${h}", "i": "x${a}"}
    found = referred(Document(data, {})).data
    assert found == {"a": 4, "b": 4, "c": {"d": 4, "e": [4]}, "f": "${g}", "h": "${h}", "i": "x${a}"}


@pytest.mark.parametrize(("number", "text"), [(1, "1st"), (3, "3rd"), (4, "4th"), (12, "12th"), (22, "22nd")])
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text


@pytest.mark.parametrize(("version", "value"), [("1.9", "old"), ("2.0", "new"), ("", "new"), ("abc1234", "new")])
def test_what_is_left_out_is_filled_by_release(version: str, value: str) -> None:
    source = Source("A framework", "its defaults")
    rows = (FilledRow("a", "old", "", source, until="2.0"), FilledRow("a", "new", "", source, since="2.0"))
    piece = Piece("x", "x")
    fill(piece, rows, version)
    assert piece.filled["a"].value == value
    given = Piece("x", "x")
    given.give("a", "mine", "f:1")
    fill(given, rows, version)
    assert given.filled == {}

"""Sections in plain text, on a terminal, and in HTML."""

from __future__ import annotations

import io

import pytest

from trainledger.show.html import html
from trainledger.show.table import Screen, Section, plain, screen_of, write

TABLE = Section("Sizes", ("in bytes",), ("name", "size", ""), (("a", "1", "#"), ("bc", "20", "")), (1,), (0,))


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_plain_text_has_no_boxes_and_nothing_trails() -> None:
    assert plain(TABLE).splitlines() == ["Sizes", "in bytes", "name  size", "a        1  #", "bc      20"]


def test_a_table_without_a_header() -> None:
    assert plain(Section("", (), ("", ""), (("a", "1"), ("bc", "2")))).splitlines() == ["a   1", "bc  2"]


def test_empty_sections_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    write((Section("Nothing"), TABLE), Screen(False, 80, "#"))
    assert "Nothing" not in capsys.readouterr().out


def test_a_pipe_gets_plain_bars_and_a_terminal_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert screen_of(io.StringIO()).block == "#"
    monkeypatch.setenv("COLUMNS", "90")
    terminal = Terminal()
    assert (screen_of(terminal).styled, screen_of(terminal).width) == (True, 90)


def test_what_an_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    write((Section("Modèle", ("x",)),), Screen(False, 80, "#"))
    stream.flush()
    assert raw.getvalue() == b"Mod\\xe8le\nx\n"


def test_no_line_is_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    wide = Section("Wide", (), ("a", "b"), (("word " * 30, "1 GiB"),), (1,))
    write((wide,), Screen(True, 60, "#"))
    out = capsys.readouterr().out
    assert "Wide" in out
    assert max(map(len, out.splitlines())) <= 60


def test_html_keeps_the_cells() -> None:
    page = html((TABLE, Section("Nothing")))
    assert "<th>size</th>" in page
    assert '<td style="text-align: right">20</td>' in page
    assert "Nothing" not in page


def test_a_narrow_terminal_cuts_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr("sys.stdout", stream := Terminal())
    numbers = ("136,134,656", "802,816", "12.741")
    write([Section("Sizes", (), ("name", "a", "b", "c"), (("weights", *numbers),), (1, 2, 3))], Screen(True, 20, "#"))
    assert all(one in stream.getvalue() for one in ("weights", *numbers))

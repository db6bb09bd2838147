"""Ctrl-C while the program's own modules are imported: a line and the exit code, no traceback."""

from __future__ import annotations

import sys

import pytest

from trainledger.cli import main, start
from trainledger.cli.exits import ExitCode


def test_it_exits_with_the_command_line_s_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "main", lambda: ExitCode.DOES_NOT_FIT)
    with pytest.raises(SystemExit) as left:
        start.run()
    assert left.value.code == ExitCode.DOES_NOT_FIT


def test_interrupted_while_importing(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "trainledger.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "trainledger.cli.main")
    monkeypatch.delattr("trainledger.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        start.run()
    assert left.value.code == ExitCode.INTERRUPTED
    assert capfd.readouterr().err == "Interrupted; no answer was written.\n"

"""Functions of a user's own file, traced in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.evidence.trace.scripts import TEXT
from trainledger.base.problems import TraceError
from trainledger.evidence.trace.job import Job
from trainledger.evidence.trace.lines import Trace, trace_of
from trainledger.evidence.trace.live.script import run_script
from trainledger.evidence.trace.live.session import where_of
from trainledger.lines.line import Account


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "user_script.py"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def traced(name: str) -> Trace:
    return trace_of(run_script(name, where_of(Job(None, name)), lambda text: None))


def test_a_step_of_the_users_own(script: str) -> None:
    trace = traced(f"{script}:step")
    assert "step 2: clip" in [one.name for one in trace.moments]
    live = next(one.live for one in trace.moments if one.name == "step 2: optimizer")
    states = [trace.lines[at] for at, _ in live if trace.lines[at].account == Account.OPTIMIZER]
    assert sorted(one.unit for one in states) == [512, 64 * 64 * 4]  # a momentum of the bias, and of the weight


@pytest.mark.parametrize(
    ("function", "words"),
    [("nothing", "the script's function returned int"), ("missing", "has no function 'missing'")],
)
def test_what_is_no_step_is_refused(script: str, function: str, words: str) -> None:
    with pytest.raises(TraceError, match=words) as failed:
        traced(f"{script}:{function}")
    assert "\n" not in str(failed.value)


def test_no_file() -> None:
    with pytest.raises(TraceError, match="no such file"):
        traced("nowhere.py:f")

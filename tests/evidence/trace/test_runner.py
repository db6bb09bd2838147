"""The tracing process: what it gives, and what a failure, a crash and a late one say."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.evidence.trace.scripts import TEXT
from trainledger.base.problems import TraceError
from trainledger.evidence.trace.job import Job, as_data, from_data
from trainledger.evidence.trace.lines import Trace, trace_of
from trainledger.evidence.trace.runner import run_job
from trainledger.lines.line import Account
from trainledger.lines.stream import total


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "user_script.py"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def by_account(trace: Trace, moment: str) -> dict[str, int]:
    found: dict[str, int] = {}
    live = next(one.live for one in trace.moments if one.name == moment)
    for number, copies in live:
        line = trace.lines[number]
        found[line.account] = found.get(line.account, 0) + line.unit * copies
    return found


def rounded(*sizes: int) -> int:
    return sum(-(-size // 512) * 512 for size in sizes)


def test_pieces(script: str) -> None:
    said: list[str] = []
    trace = trace_of(run_job(Job(None, f"{script}:pieces", workspace=1024), said.append))
    assert "step 1: forward" in said
    names = [one.name for one in trace.moments]
    assert names == ["init", *(f"step {n}: {p}" for n in (1, 2) for p in ("forward", "backward", "optimizer"))]
    weights = rounded(64 * 256 * 4, 256 * 4, 256 * 8 * 4, 8 * 4)
    found = by_account(trace, "step 2: optimizer")
    assert found[Account.WEIGHTS] == found[Account.GRADIENTS] == weights
    assert found[Account.OPTIMIZER] == 2 * weights
    assert found[Account.STEP] == weights  # foreach by default, as on CUDA: one square root of every second moment
    assert found[Account.WORKSPACE] == 2 * 1024
    assert trace.record.parameters == (64 * 256 + 256 + 256 * 8 + 8,) * 2
    for moment in trace.moments:
        assert total(trace.lines, moment.live) == moment.allocated


def test_a_crash_is_one_line(script: str) -> None:
    with pytest.raises(TraceError, match="the tracing process ended at init with code") as failed:
        run_job(Job(None, f"{script}:crash"))
    assert "\n" not in str(failed.value)


def test_late(script: str) -> None:
    with pytest.raises(TraceError, match="not done in time"):
        run_job(Job(None, f"{script}:slow"), timeout=6)


def test_a_job_goes_through_json() -> None:
    from tests.plans import plan_of

    job = Job(plan_of(), "", "sm80", 8, (108, 2048), "2.13.0")
    assert from_data(as_data(job)) == job

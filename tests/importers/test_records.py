"""Run records, one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainledger.base.problems import InputError, Problem
from trainledger.importers.records import OperatorRecord, Record, read_record, read_records

SAMPLE = Path(__file__).parents[1] / "data" / "records_sample.jsonl"
GOOD: dict[str, Any] = {"id": "a", "plan": {}, "measured": {"metric": "allocated_peak", "bytes": 5}}


def test_the_sample_is_read() -> None:
    rows = list(read_records(str(SAMPLE)))
    runs = [row for row in rows if isinstance(row, Record)]
    assert len(runs) == 12
    assert len([row for row in rows if isinstance(row, OperatorRecord)]) == 1
    assert {run.measured.outcome for run in runs} == {"fits", "oom"}
    for run in runs:
        assert run.draft().plan.keys()["model_type"]


def test_what_is_left_out_has_its_meaning() -> None:
    record = read_record(json.dumps(GOOD), "x:1")
    assert isinstance(record, Record)
    assert (record.measured.rank, record.measured.outcome, record.measured.rounding) == ("max", "fits", 1)
    with pytest.raises(InputError, match="batch"):
        record.draft()


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "5",
        b"\xff",
        json.dumps({**GOOD, "id": 5}),
        json.dumps({**GOOD, "plan": []}),
        json.dumps({**GOOD, "measured": {"metric": "x", "bytes": 5}}),
        json.dumps({**GOOD, "measured": {"metric": "allocated_peak", "bytes": -5}}),
        json.dumps({**GOOD, "measured": {"metric": "allocated_peak", "bytes": 5, "rank": "first"}}),
        json.dumps({**GOOD, "measured": {"metric": "allocated_peak", "bytes": 5, "rounding": float("nan")}}),
    ],
)
def test_a_bad_line_is_a_problem_with_its_line(line: str | bytes) -> None:
    problem = read_record(line, "x:7")
    assert isinstance(problem, Problem)
    assert problem.where == "x:7"


def test_good_lines_around_a_bad_one_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD) + "\n\nbroken\n" + json.dumps(GOOD) + "\n")
    kinds = [type(row).__name__ for row in read_records(str(path))]
    assert kinds == ["Record", "Problem", "Record"]
    with pytest.raises(InputError):
        list(read_records(str(tmp_path / "missing.jsonl")))

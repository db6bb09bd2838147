"""Estimates against runs of DeepSpeed's own code; sources stand in the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainledger.cli.main import main

DATA = Path(__file__).parent.parent / "data" / "records_deepspeed.jsonl"


def test_allocated_and_reserved_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accuracy", str(DATA), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    limits = {"allocated_peak": 0.0001, "reserved_peak": 0.002}
    assert len(rows) == 30
    wrong = [(row["id"], row["error"]) for row in rows if abs(row["error"]) > limits[row["metric"]]]
    assert wrong == []

"""Sharded runs of small models with options that users seldom name, against PyTorch's own allocator.

The file's rows were measured as those of the emulated groups are: PyTorch 2.14.1 and Transformers 5.24.0 on the caching
allocator over an emulated CUDA runtime, three steps.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from trainledger.cli.main import main

DATA = Path(__file__).parent.parent / "data" / "records_small_sharded.jsonl"
IDS = [json.loads(line)["id"] for line in DATA.read_text().splitlines()]
BLOCK = 512


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], dict[str, Any]]:
    """Every row's answer, by its id and metric."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["accuracy", str(DATA), "--json"]) == 0
    return {(row["id"], row["metric"]): row for row in json.loads(out.getvalue())["rows"]}


@pytest.mark.parametrize("name", IDS)
def test_the_allocated_peak_is_exact(name: str, rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    row = rows[name, "allocated_peak"]
    assert abs(row["expected"] - row["measured"]) <= BLOCK


@pytest.mark.parametrize("name", IDS)
def test_the_reserved_peak_is_exact(name: str, rows: dict[tuple[str, str], dict[str, Any]]) -> None:
    row = rows[name, "reserved_peak"]
    assert row["expected"] == row["measured"]

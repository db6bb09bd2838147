"""How long an estimate takes once everything is imported."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from trainledger.answer.estimate import estimate
from trainledger.importers.plan_file import read_draft

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.yaml"))
SECONDS = 0.005


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def bench_estimate(benchmark: BenchmarkFixture, path: Path) -> None:
    """The median of an estimate, from the checked plan to the verdict, stays below the promise."""
    plan = read_draft(str(path)).plan
    benchmark(estimate, plan)
    assert benchmark.stats.stats.median < SECONDS

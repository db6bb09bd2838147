"""How long an estimate takes once everything is imported."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.yaml"))
SECONDS = 0.005


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def bench_estimate(benchmark: BenchmarkFixture, path: Path) -> None:
    """The median of an estimate, from the checked plan to the verdict, stays below the promise."""
    answer = pytest.importorskip("trainledger.answer.estimate")
    importers = pytest.importorskip("trainledger.importers.plan_file")
    draft = importers.read(str(path))
    benchmark(answer.estimate, draft)
    assert benchmark.stats.stats.median < SECONDS

"""How long a ledger and a whole estimate take once everything is imported."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from trainledger.answer.estimate import architecture_of, device_of, estimate
from trainledger.importers.plan_file import read_draft
from trainledger.ledger.rank import rank_ledger
from trainledger.model.build import build

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.yaml"))
LEDGER_SECONDS = {"llama-3-70b": 0.005}  # the promise; others run more recompute, buckets or micro-batches
OTHERS_SECONDS = 0.01
ESTIMATE_SECONDS = 0.5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def bench_ledger(benchmark: BenchmarkFixture, path: Path) -> None:
    """The median of a ledger by formula, from the checked plan to every moment, stays below the promise."""
    plan = read_draft(str(path)).plan
    architecture = architecture_of(device_of(plan))
    benchmark(lambda: rank_ledger(plan, build(plan.keys()), architecture))
    assert benchmark.stats.stats.median < LEDGER_SECONDS.get(path.stem, OTHERS_SECONDS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def bench_estimate(benchmark: BenchmarkFixture, path: Path) -> None:
    """The median of an estimate with its replay on the allocator stays below the promise."""
    plan = read_draft(str(path)).plan
    benchmark(estimate, plan)
    assert benchmark.stats.stats.median < ESTIMATE_SECONDS

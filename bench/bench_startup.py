"""How long the program takes as a whole process: the list of verbs, and an estimate of a large model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
HELP_SECONDS = 0.3
ESTIMATE_SECONDS = 0.6


def program(*arguments: str) -> None:
    """Run the program once. Raises CalledProcessError when it does not answer."""
    subprocess.run([sys.executable, "-m", "trainledger", *arguments], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [
        (("--help",), HELP_SECONDS),
        (("estimate", str(EXAMPLES / "llama-3-70b.yaml")), ESTIMATE_SECONDS),
        (("estimate", str(EXAMPLES / "llama-3-70b.yaml"), "--json"), ESTIMATE_SECONDS),
    ],
    ids=["help", "estimate", "estimate as JSON"],
)
def bench_process(benchmark: BenchmarkFixture, arguments: tuple[str, ...], seconds: float) -> None:
    """The median of ten processes stays below the promise."""
    benchmark.pedantic(program, args=arguments, rounds=10, warmup_rounds=1)
    assert benchmark.stats.stats.median < seconds

"""Estimates against run records: a fixed part of the published ones, with their sources in the file."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from trainledger.cli.main import main

FOLDER = Path(__file__).parent.parent / "data"
NAMES = ("full", "sharded", "tuned", "frameworks", "colossal", "torchtitan", "megatron", "preferences")
DATA = tuple(str(FOLDER / f"records_{name}.jsonl") for name in NAMES)
# group: median and 95th percentile of |error| of the allocated peak that may not be exceeded
LIMITS = {
    "emulated-single": (0.003, 0.015),
    "emulated-ddp": (0.003, 0.015),
    "hf-full": (0.01, 0.03),
    "emulated-fsdp": (0.0005, 0.002),
    "emulated-fsdp-nd": (0.003, 0.005),
    "emulated-peft": (0.001, 0.005),
    "emulated-trainer": (0.0005, 0.002),
    "hf-fsdp": (0.002, 0.005),
    "hf-lora": (0.0005, 0.001),
    "hf-qlora": (0.002, 0.025),
    "litgpt": (0.003, 0.012),
    "colossal-pref": (0.01, 0.02),
    "emulated-megatron": (0.0002, 0.0005),
}


# likewise, of groups that print another metric
OTHERS = {
    ("fsdp-qlora", "reserved_peak"): (0.05, 0.07),
    ("torchtune", "active_peak"): (0.002, 0.006),
    ("torchtitan-fsdp", "reserved_peak"): (0.003, 0.007),
    ("torchtitan-nd", "reserved_peak"): (0.004, 0.035),
    ("pithtrain", "allocated_peak"): (0.03, 0.03),
}


def compared(*options: str) -> dict[str, Any]:
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["accuracy", *DATA, "--json", *options]) == 0
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    """All rows compared, once."""
    return compared()


def test_the_allocated_peak_is_within_the_limits_of_every_group(answer: dict[str, Any]) -> None:
    groups = answer["groups"]
    for group, (median, tail) in LIMITS.items():
        score = groups[group]["allocated_peak"]
        assert score["failed"] == 0, group
        assert score["median"] <= median, group
        assert score["p95"] <= tail, group


def test_the_other_metrics_of_groups_that_print_these_alone(answer: dict[str, Any]) -> None:
    groups = answer["groups"]
    for (group, metric), (median, tail) in OTHERS.items():
        score = groups[group][metric]
        assert score["failed"] == 0, group
        assert score["median"] <= median, group
        assert score["p95"] <= tail, group


def test_no_run_that_fitted_is_refused_and_none_that_failed_is_let_in(answer: dict[str, Any]) -> None:
    verdicts = answer["verdicts"]
    assert verdicts["n"] > 0
    assert (verdicts["false_fits"], verdicts["false_alarms"]) == (0, 0)


def test_rows_can_be_selected() -> None:
    rows = compared("--above", "60GB", "--confidence", "A")["rows"]
    assert rows
    assert min(row["measured"] for row in rows if row["metric"] == "allocated_peak") >= 60e9

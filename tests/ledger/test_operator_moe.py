"""Liger's fused experts against its published rows on an H100 (all_benchmark_data.csv, 1faa0131)."""

from __future__ import annotations

import pytest

from tests.ledger.operator_rows import difference
from trainledger.ledger.operators import OperatorRun, operator_peak

QWEN = {"E": 128, "H": 2048, "intermediate_dim": 768, "K": 8}
ROUTING = 4 * 1024  # bytes: how many tiles each expert's tokens fill is random, and counted at most


@pytest.mark.parametrize(
    ("passes", "measured"),
    [("forward+backward", 5_839_923_200), ("backward", 5_839_923_200), ("forward", 3_121_752_576)],
)
def test_published_rows(passes: str, measured: int) -> None:
    row = ("fused_moe", "liger", {**QWEN, "T": 8192}, measured)
    assert 0 <= difference(row, "bf16", "0.7.0", "h100-80gb", passes) <= ROUTING


def test_the_loop_over_experts_is_not_guessed() -> None:
    assert operator_peak(OperatorRun("fused_moe", "huggingface", {**QWEN, "T": 8192}, "bf16")) is None

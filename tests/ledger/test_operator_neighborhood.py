"""Neighborhood attention layers against Liger's published rows (all_benchmark_data.csv, a53675dd)."""

from __future__ import annotations

import pytest

from tests.ledger.operator_rows import Row, difference, named

LAYER = {"batch_size": 2, "hidden_size": 512, "num_heads": 8, "kernel_size": 7, "dilation": 1, "bias": True}
ROWS: tuple[Row, ...] = (
    ("fused_neighborhood_attention", "liger", {**LAYER, "seq_len": 1024}, 285_499_392),
    ("fused_neighborhood_attention", "torch", {**LAYER, "seq_len": 1024}, 336_879_616),
)
LARGER = 2 * (32 * 2**20 - (8 * 2**20 + 128 * 2**10))  # both threads' workspaces on Hopper, less those on Ampere


@named(ROWS)
@pytest.mark.parametrize(("device", "more"), [("rtx3090", 0), ("h100-80gb", LARGER)])
def test_published_rows(row: Row, device: str, more: int) -> None:
    operator, implementation, shape, measured = row
    assert difference((operator, implementation, shape, measured + more), "fp32", "0.5.10", device) == 0

"""Sparsemax and sparse attention against Liger's published rows (all_benchmark_data.csv, ead96b618e5c)."""

from __future__ import annotations

from tests.ledger.operator_rows import Row, difference, named
from trainledger.ledger.operators import OperatorRun, operator_peak

HEADS = {"B": 2, "C_in": 4, "C_out": 4, "K": 3, "groups": 1, "bias": True}
ROWS: tuple[Row, ...] = (
    ("sparsemax", "liger", {"B": 4, "T": 512, "V": 2048}, 172_007_424),
    ("sparsemax", "torch", {"B": 4, "T": 512, "V": 2048}, 172_007_424),
    ("sparsemax", "torch", {"B": 4, "T": 512, "V": 8192}, 738_198_016),
    ("sparse_multi_token_attention", "liger", {**HEADS, "L": 512}, 94_444_032),
    ("sparse_multi_token_attention", "torch", {**HEADS, "L": 512}, 118_022_656),
)


@named(ROWS)
def test_published_rows(row: Row) -> None:
    assert difference(row, "fp32", "0.5.8", "rtx3090") == 0


def test_the_released_kernel_makes_less_than_the_baseline() -> None:
    shape = {"B": 4, "T": 512, "V": 2048}
    old, new = (
        operator_peak(OperatorRun("sparsemax", "liger", shape, "fp32", release=one)) for one in ("0.5.8", "0.6")
    )
    assert old is not None
    assert new is not None
    assert new < old


def test_few_long_rows_take_another_kernel() -> None:
    assert operator_peak(OperatorRun("sparsemax", "torch", {"B": 1, "T": 8, "V": 8192}, "fp32")) is None

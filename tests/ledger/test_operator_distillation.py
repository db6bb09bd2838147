"""Liger's distillation loss with its heads, as measured on an H100 (all_benchmark_data.csv, 0.4.2)."""

from __future__ import annotations

import pytest

from tests.ledger.operator_rows import Row, difference, named
from trainledger.ledger.operators import OperatorRun, operator_peak

MIB = 2**20
HEADS = {"H": 4096, "V": 128256, "bias": False, "weight_hard_loss": 0.5, "weight_soft_loss": 0.5, "ignore_index": -100}
ROWS: tuple[Row, ...] = (
    ("distill_jsd_loss", "liger", {**HEADS, "BT": 1024}, 11_443_677_184),
    ("distill_jsd_loss", "liger", {**HEADS, "BT": 2048}, 11_473_045_504),
    ("distill_jsd_loss", "liger", {**HEADS, "BT": 4096}, 11_531_782_144),
    ("distill_jsd_loss", "liger", {**HEADS, "BT": 8192}, 11_649_255_424),
    ("distill_jsd_loss", "torch", {**HEADS, "BT": 1024}, 16_959_709_184),
    ("distill_jsd_loss", "torch", {**HEADS, "BT": 2048}, 24_864_935_936),
    ("distill_jsd_loss", "torch", {**HEADS, "BT": 4096}, 40_675_389_440),
    ("distill_jsd_loss", "torch", {**HEADS, "BT": 8192}, 72_296_275_968),
)


def peak(implementation: str, release: str = "0.4.2", **shape: object) -> int | None:
    whole = {**HEADS, **shape}
    return operator_peak(OperatorRun("distill_jsd_loss", implementation, whole, "bf16", release=release))


@named(ROWS)
def test_distillation_up_to_blocks_that_were_not_split(row: Row) -> None:
    """Six tensors of 501 MiB, made while nothing was cached, lie in segments of 502."""
    assert difference(row, "bf16", "0.4.2", "h100-80gb") == 0 - 6 * MIB


def test_tokens_below_a_chunk_are_one_chunk() -> None:
    """What grows with them: inputs, eleven times the low dtype's logits, two numbers."""
    more, fewer = (peak("liger", H=512, V=4096, BT=tokens) for tokens in (512, 256))
    assert more is not None
    assert fewer is not None
    states, seen, target = 2 * 256, 2 * 512, 8
    assert more - fewer == 256 * (4 * states + seen + target + 11 * 2 * 4096 + 2 * 4)


@pytest.mark.parametrize("implementation", ["liger", "torch"])
def test_biases_are_there_without_being_read(implementation: str) -> None:
    """Those of a student's and a teacher's head in each of two modules."""
    without, with_biases = (peak(implementation, BT=1024, bias=bias) for bias in (False, True))
    assert without is not None
    assert with_biases is not None
    assert with_biases - without == 4 * 2 * 128256


def test_code_of_later_releases_is_not_known() -> None:
    assert peak("liger", "0.5.0", BT=1024) is None

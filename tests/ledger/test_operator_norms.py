"""Norms alone against what Liger's published benchmarks measured (all_benchmark_data.csv, ead96b618e5c)."""

from __future__ import annotations

import pytest

from tests.ledger.operator_rows import Row, difference, named
from trainledger.ledger.operators import OperatorRun, operator_peak

GROUPS = {"M": 128, "H": 512, "channels_per_group": 4}
B200: tuple[Row, ...] = (
    ("group_norm", "liger", {**GROUPS, "C": 128}, 167_809_024),
    ("group_norm", "huggingface", {**GROUPS, "C": 128}, 168_038_400),
)
H100: tuple[Row, ...] = (
    ("fused_add_rms_norm", "liger_fused_add_rms_norm", {"M": 2048, "H": 8192}, 608_509_952),
    ("fused_add_rms_norm", "liger_rms_norm", {"M": 2048, "H": 8192}, 872_653_312),
    ("fused_add_rms_norm", "liger_rms_norm", {"M": 2048, "H": 32768}, 3_104_711_680),
    ("fused_add_rms_norm", "huggingface", {"M": 2048, "H": 32768}, 3_490_316_288),
)


MEGATRON: tuple[Row, ...] = (
    ("megatron_rms_norm", "liger", {"S": 4096, "B": 1, "H": 4096}, 169_993_216),
    ("megatron_rms_norm", "torch", {"S": 4096, "B": 1, "H": 4096}, 167_814_144),
    ("megatron_rms_norm", "megatron", {"S": 4096, "B": 1, "H": 4096}, 167_814_144),
)


@named(MEGATRON)
def test_norms_whose_sum_is_the_loss(row: Row) -> None:
    assert difference(row, None, "0.8.0", "h100-80gb") == 0


@named(B200)
def test_group_norms(row: Row) -> None:
    assert difference(row, "fp32", "0.7.0", "b200") == 0


@named(H100)
def test_sums_with_their_norm(row: Row) -> None:
    assert difference(row, "fp32", "0.7.0", "h100-80gb") == 0


@pytest.mark.parametrize(
    ("release", "device", "width", "measured"),
    [("0.2.1", "a100-80gb", 1024, 84_836_352), ("0.6.0", "h100-80gb", 8192, 671_383_552)],
)
def test_layer_norm_by_release(release: str, device: str, width: int, measured: int) -> None:
    assert difference(("layer_norm", "liger", {"M": 4096, "N": width}, measured), "fp32", release, device) == 0


def test_a_newer_layer_norm_sums_in_fp32_again() -> None:
    """Two rows of sums for each of 132 multiprocessors, which the release before it does not make."""
    shape = {"M": 4096, "N": 1024}
    newer, older = (
        operator_peak(OperatorRun("layer_norm", "liger", shape, "fp32", release=release, device="h100-80gb"))
        for release in ("0.6.4", "0.6.3")
    )
    assert newer is not None
    assert older is not None
    assert newer - older == 2 * 132 * 1024 * 4

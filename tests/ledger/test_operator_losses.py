"""Losses alone against what Liger's published benchmarks measured (all_benchmark_data.csv, ead96b618e5c)."""

from __future__ import annotations

import pytest

from tests.ledger.operator_rows import Row, difference, named
from trainledger.ledger.operators import OperatorRun, operator_peak

KL = {"B": 8, "T": 2048}
JSD = {"B": 4, "T": 2048}
LONG = {"vocab_size": 128256, "bsz": 1, "seq_len": 8192}

H100_PCIE: tuple[tuple[str, Row], ...] = (
    ("0.2.1", ("kl_div", "liger", {**KL, "V": 4096}, 1_610_613_760)),
    ("0.2.1", ("kl_div", "torch", {**KL, "V": 4096}, 1_879_048_192)),
    ("0.3.1", ("jsd", "liger", {**JSD, "V": 8192}, 1_610_615_808)),
    ("0.3.1", ("jsd", "liger", {**JSD, "V": 65536}, 12_884_919_296)),
    ("0.3.1", ("jsd", "torch", {**JSD, "V": 65536}, 27_917_287_424)),
)
B200: tuple[Row, ...] = (
    ("jsd", "liger", {**LONG, "BT": 4096}, 14_709_425_152),
    ("jsd", "torch", {**LONG, "BT": 8192}, 54_635_003_904),
)
H100: tuple[Row, ...] = (
    ("tvd", "liger", {**KL, "V": 16384}, 7_516_193_792),
    ("tvd", "torch", {**KL, "V": 16384}, 8_589_935_616),
    ("tvd", "torch", {**KL, "V": 131072}, 68_719_476_736),
)
RTX3090: tuple[tuple[str, Row], ...] = (
    ("fp32", ("softmax", "liger", {"M": 2048, "N": 128}, 2560)),
    ("fp32", ("softmax", "torch", {"M": 2048, "N": 4096}, 98_304)),
    ("bf16", ("softmax", "liger", {"M": 2048, "N": 4096}, 40_960)),
    ("bf16", ("softmax", "torch", {"M": 2048, "N": 256}, 3072)),
)


@pytest.mark.parametrize(("release", "row"), H100_PCIE)
def test_divergences_on_an_h100_pcie(release: str, row: Row) -> None:
    assert difference(row, None, release, "h100-pcie") == 0


@named(B200)
def test_divergences_of_the_newer_script(row: Row) -> None:
    """It hands in a random gradient, which Liger's kernel multiplies in, and calls another baseline."""
    assert difference(row, None, "0.8.0", "b200") == 0


@named(H100)
def test_total_variation(row: Row) -> None:
    assert difference(row, None, "0.7.0", "h100-80gb") == 0


@pytest.mark.parametrize(("dtype", "row"), RTX3090)
def test_softmax_of_one_row(dtype: str, row: Row) -> None:
    """The script makes a tensor of N elements, whatever M is."""
    assert difference(row, dtype, "0.5.8", "rtx3090") == 0


def test_a_gradient_that_is_not_one_makes_another_tensor() -> None:
    shape = {"B": 1, "T": 1024, "V": 1024}
    old, new = (operator_peak(OperatorRun("jsd", "liger", shape, None, release=one)) for one in ("0.7.0", "0.8.0"))
    assert old is not None
    assert new is not None
    assert new - old == 4 * 1024 * 1024


def test_an_unknown_shape_is_not_guessed() -> None:
    assert operator_peak(OperatorRun("tvd", "torch", {"B": 8, "T": 8}, None)) is None

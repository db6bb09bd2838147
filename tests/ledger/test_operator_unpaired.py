"""Liger's KTO loss with its heads, as measured on an H100 (all_benchmark_data.csv, 0.5.4)."""

from __future__ import annotations

import pytest

from tests.ledger.operator_rows import Row, difference
from trainledger.ledger.operators import OperatorRun, operator_peak

MIB = 2**20
HEADS = {"T": 512, "H": 1024, "V": 128256, "bias": True, "beta": 0.1, "ignore_index": 42}
WEIGHT, BIAS, SEQUENCE = 2 * 128256 * 1024, 2 * 128256, 2 * 512 * 1024
# measured less estimated: blocks with up to 1 MiB that is too little to split off
ROWS: tuple[tuple[Row, int], ...] = (
    (("kto_loss", "huggingface", {**HEADS, "B": 2}, 4_552_654_336), MIB),
    (("kto_loss", "huggingface", {**HEADS, "B": 16}, 17_451_833_344), 0),
    (("kto_loss", "liger", {**HEADS, "B": 2}, 2_711_343_616), 3 * MIB // 4),
    (("kto_loss", "liger", {**HEADS, "B": 16}, 3_549_467_648), 7 * MIB // 4),
)


def peak(implementation: str, release: str = "0.5.4", **shape: object) -> int:
    whole = {**HEADS, **shape}
    found = operator_peak(OperatorRun("kto_loss", implementation, whole, "bf16", release=release))
    assert found is not None
    return found


@pytest.mark.parametrize(("row", "left"), ROWS, ids=[f"{row[1]}-{row[2]['B']}" for row, _ in ROWS])
def test_unpaired_preferences(row: Row, left: int) -> None:
    assert difference(row, "bf16", "0.5.4", "h100-80gb") == pytest.approx(-left, abs=8192)


def test_only_liger_s_first_size_finds_less_left_behind() -> None:
    """What its compiled call leaves: both heads, their trained part's gradients, and two sequences of both models."""
    first, second, third = (peak("liger", B=batch) for batch in (2, 4, 6))
    drawn = 2 * (2 * SEQUENCE + 8 * 512)
    left = 3 * (WEIGHT + BIAS) + drawn + 2 * 512  # labels and the divergence
    # of two more sequences: what is drawn, and gradients of their states
    assert third - second == drawn + 2 * SEQUENCE
    assert second - first == left + drawn + 2 * SEQUENCE


def test_heads_without_biases_leave_one_call_behind() -> None:
    """With biases: those of two modules, gradients, and what measuring memory for the first size compiled and left."""
    biased, plain = (peak("huggingface", B=8, bias=bias) for bias in (True, False))
    drawn = 2 * (2 * SEQUENCE + 8 * 512) + 2 * 512
    assert biased - plain == pytest.approx(4 * BIAS + BIAS + BIAS + 3 * (WEIGHT + BIAS) + drawn, abs=1024)


def test_code_of_earlier_releases_is_not_known() -> None:
    run = OperatorRun("kto_loss", "liger", {**HEADS, "B": 2}, "bf16", release="0.5.3")
    assert operator_peak(run) is None


def test_more_tokens_of_one_sequence() -> None:
    """The compiled program's largest instant: both models' logits, a gradient in fp32, and four numbers a token."""
    width, vocab = 64, 4096
    longer, shorter = (peak("liger", B=1, T=length, H=width, V=vocab) for length in (1024, 512))
    drawn = 2 * 2 * width + 8  # for one sequence here, and for four that were left behind
    assert longer - shorter == 512 * ((1 + 4) * drawn + (2 + 2 + 4) * vocab + 4 * 4)

"""Cross-entropy over a part of the vocabulary: what its code makes, by hand."""

from __future__ import annotations

import pytest

from trainledger.ledger.operators import OperatorRun, operator_peak

SHAPE = {"S": 2048, "B": 4, "V": 8192, "TP": 1}
TOKENS = 8192
LOGITS = 2 * TOKENS * 8192  # bf16


def _peak(implementation: str, shape: dict[str, int]) -> int:
    peak = operator_peak(OperatorRun("megatron_cross_entropy", implementation, shape, None, release="0.8.0"))
    assert peak is not None
    return peak


def test_liger_holds_logits_exponentials_and_the_gradient() -> None:
    """Targets; sums of exponentials, losses and their gradient; the loss and its gradient."""
    assert _peak("liger", SHAPE) == 4 * LOGITS + TOKENS * (8 + 3 * 4) + 2 * 512


def test_megatron_holds_a_copy_in_fp32_and_both_gradients() -> None:
    """Targets, and as they are on this rank; whose they are; losses; the loss and its gradient."""
    assert _peak("megatron-unfused", SHAPE) == 4 * LOGITS + TOKENS * (8 + 8 + 1 + 4) + 2 * 512


@pytest.mark.parametrize(
    ("vocab", "fused", "unfused"),
    [
        (4096, 402_826_240, 268_608_512), (8192, 805_479_424, 537_043_968), (32768, 3_221_398_528, 2_147_656_704),
        (131072, 12_885_074_944, 8_590_107_648),
    ],
)  # fmt: skip
def test_megatron_as_the_allocator_counts_it(vocab: int, fused: int, unfused: int) -> None:
    """Megatron Core 0.16.1, its fused functions compiled, over a stand-in for CUDA; the fused one also holds the
    softmax beside its gradient."""
    shape = {**SHAPE, "V": vocab}
    assert _peak("megatron-fused", shape) == fused
    assert _peak("megatron-unfused", shape) == unfused


def test_a_rank_holds_its_part() -> None:
    whole, half = (_peak("liger", {**SHAPE, "TP": tp}) for tp in (1, 2))
    assert whole - half == 2 * LOGITS

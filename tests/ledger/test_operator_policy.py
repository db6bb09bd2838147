"""Liger's GRPO loss with its heads, as PyTorch's allocator counts the benchmark's own code over a stand-in for CUDA.

Sizes of an A100: benchmark_grpo_loss.py (78125679), every size and level in one process, on PyTorch 2.7.1.
"""

from __future__ import annotations

import pytest

from trainledger.ledger.operators import OperatorRun, operator_peak

HEADS = {"T": 1024, "H": 4096, "V": 128256}
COUNTED = (
    ("liger", 2, 7_701_556_736),
    ("liger", 4, 7_768_690_176),
    ("liger", 8, 7_902_957_056),
    ("liger", 16, 8_171_490_816),
    ("torch", 2, 9_524_511_232),
    ("torch", 4, 13_776_519_680),
    ("torch", 8, 22_282_633_728),
    ("torch", 16, 39_294_861_824),
)


def peak(implementation: str, level: str = "token", **shape: object) -> int:
    whole = {**HEADS, "importance_sampling_level": level, **shape}
    operator = f"fused_linear_grpo_loss_{level}"
    found = operator_peak(OperatorRun(operator, implementation, whole, "bf16", release="0.6.1", device="a100-80gb"))
    assert found is not None
    return found


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize(("implementation", "batch", "counted"), COUNTED)
def test_policy_losses(level: str, implementation: str, batch: int, counted: int) -> None:
    """Up to a number of 512 bytes; two blocks of 501 MiB lie in 502 here, of which one was split there."""
    blocks = 2**20 if (implementation, batch) == ("torch", 2) else 0
    assert peak(implementation, level, B=batch) - counted == pytest.approx(blocks, abs=512)


def test_a_completion_more_is_its_states_and_what_is_drawn() -> None:
    """Hidden states of both models, the gradients of the policy's twice (one is made in forward), tokens and mask."""
    more, fewer = (peak("liger", B=batch) for batch in (3, 2))
    assert more - fewer == 1024 * (4 * 2 * 4096 + 8 + 4)


def test_longer_completions_of_the_baseline() -> None:
    """All logits in the low dtype and in fp32 of both models, and the reference's cast that log-softmax reads."""
    longer, shorter = (peak("torch", B=2, T=length) for length in (4096, 2048))
    states = 3 * 2 * 4096 + 8 + 4  # of both models, the policy's gradient, tokens and mask
    assert longer - shorter == 2 * 2048 * (states + (2 + 4 + 2 + 4 + 4) * 128256 + 4)

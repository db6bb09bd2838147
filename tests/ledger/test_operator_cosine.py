"""Liger's distillation by cosines with its heads, as PyTorch's allocator counts the benchmark's own code over a
stand-in for CUDA.

Sizes of an A100: benchmark_distill_cosine_loss.py (08906d3d), every size in one process, on PyTorch 2.7.1.
"""

from __future__ import annotations

import pytest

from trainledger.ledger.operators import OperatorRun, operator_peak

HEADS = {"H": 4096, "V": 128256, "bias": False, "weight_hard_loss": 0.5, "weight_soft_loss": 0.5, "ignore_index": -100}
COUNTED = (
    ("liger", 1024, 5_305_027_072),
    ("liger", 2048, 5_334_395_392),
    ("liger", 4096, 5_393_132_032),
    ("liger", 8192, 5_510_605_312),
    ("torch", 1024, 7_933_821_952),
    ("torch", 2048, 12_153_324_544),
    ("torch", 4096, 20_609_106_944),
    ("torch", 8192, 37_520_671_744),
)


def peak(implementation: str, **shape: object) -> int:
    whole = {**HEADS, **shape}
    found = operator_peak(
        OperatorRun("distill_cosine_loss", implementation, whole, "bf16", release="0.5.10", device="a100-80gb")
    )
    assert found is not None
    return found


@pytest.mark.parametrize(("implementation", "tokens", "counted"), COUNTED)
def test_distillation_by_cosines(implementation: str, tokens: int, counted: int) -> None:
    assert peak(implementation, BT=tokens) == pytest.approx(counted, abs=1024)


def test_a_small_baseline_in_a_process_of_its_own() -> None:
    """Both threads have their workspaces; on the way there and back alike, eight tensors of all logits in fp32."""
    assert peak("torch", BT=1024, H=512, V=32768) == 1_211_401_216


def test_chunks_divide_tokens_as_torch_does() -> None:
    """1536 tokens are one chunk: more logits at a time than of 2048 tokens, which are two."""
    one, two = (peak("liger", BT=tokens, H=512, V=65536) for tokens in (1536, 2048))
    assert one > two


def test_biases_lie_in_both_modules() -> None:
    """Liger's loss trains the student's: a gradient stays, one is made for all chunks, and one of each."""
    for implementation, vectors in (("torch", 4), ("liger", 7)):
        without, with_biases = (peak(implementation, BT=1024, bias=bias) for bias in (False, True))
        assert with_biases - without == pytest.approx(vectors * 2 * 128256, abs=8192)

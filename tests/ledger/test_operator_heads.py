"""Heads with their losses against what Apple and XTuner published."""

from __future__ import annotations

import pytest

from trainledger.ledger.operators import OperatorRun, operator_peak

GEMMA = {"tokens": 8192, "hidden": 2304, "vocab": 256000}
QWEN = {"tokens": 32768, "hidden": 4096, "vocab": 151936}
MIB = 2**20


# ml-cross-entropy README.md (d42911f9b1), A100, MiB above the inputs, as coarsely as they are recorded
@pytest.mark.parametrize(
    ("implementation", "passes", "mib", "printed"),
    [
        ("cut-cross-entropy", "forward", 1.1, 0.1), ("cut-cross-entropy", "backward", 1163, 1),
        ("cut-cross-entropy", "forward+backward", 1164, 1), ("torch-compile", "forward", 4000.1, 0.1),
        ("torch-compile", "backward", 12000, 1), ("torch-compile", "forward+backward", 16000.1, 0.1),
    ],
)  # fmt: skip
def test_heads_above_their_inputs(implementation: str, passes: str, mib: float, printed: float) -> None:
    run = OperatorRun(
        "linear_cross_entropy", implementation, GEMMA, "bf16", passes, "allocated_above_inputs", device="a100-80gb"
    )
    peak = operator_peak(run)
    assert peak is not None
    assert abs(peak / MIB - mib) <= printed / 2


# XTuner docs/en/pretrain_sft/advanced_tutorial/loss.md (b934f46209), GiB of the whole process
@pytest.mark.parametrize(("implementation", "gib"), [("torch", 38.53), ("chunked-1024", 8.32)])
def test_whole_and_chunked_losses_of_one_script(implementation: str, gib: float) -> None:
    peak = operator_peak(OperatorRun("linear_cross_entropy", implementation, QWEN, "bf16"))
    assert peak is not None
    assert peak / 2**30 == pytest.approx(gib, rel=0.0015)


def test_one_chunk_holds_nothing_of_a_chunk_before() -> None:
    """Two chunks of 1024 tokens hold the weight's gradient and logits of the first one more."""
    two, one = (
        operator_peak(OperatorRun("linear_cross_entropy", "chunked-1024", {**QWEN, "tokens": tokens}, "bf16"))
        for tokens in (2048, 1024)
    )
    assert one is not None
    assert two is not None
    assert two - one > QWEN["vocab"] * (2 * QWEN["hidden"] + 4 * 1024)

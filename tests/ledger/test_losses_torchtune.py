"""torchtune's losses: what lives of the logits at the loss, eager and compiled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate

TOKENS = 512
MODEL = {**LLAMA, "vocab_size": 64_000, "num_hidden_layers": 1}
WHOLE = TOKENS * MODEL["vocab_size"]


def at_the_loss(**stack: Any) -> int:
    """Bytes that the loss adds to a forward of a tied or untied head's hidden states."""
    stack = {"framework": "torchtune", "versions": {}, "recompute": "none", **stack}
    found = estimate(plan_of(MODEL, batch={"micro_batch": 1, "sequence": TOKENS}, stack=stack))

    def most(name: str) -> int:
        return max(one.allocated for one in found.ledger.moments if one.name == name)

    return most("step 1: loss") - most("step 1: forward")


@pytest.mark.parametrize(
    ("loss", "compiled", "each"),
    [
        ("full-fp32", False, 8),  # cast logits while their log-probabilities are made
        ("full-fp32", True, 6),  # bf16 logits while they are cast
        ("chunked", False, 6 + 4 / 8),  # bf16 logits, fp32 log-probabilities, one chunk's cast
        ("chunked", True, 2),  # bf16 logits alone
    ],
)
def test_bytes_of_each_token_and_word(loss: str, compiled: bool, each: float) -> None:
    assert at_the_loss(loss=loss, compile=compiled) == pytest.approx(each * WHOLE, rel=0.06)

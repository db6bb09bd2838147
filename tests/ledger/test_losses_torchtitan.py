"""torchtitan's losses: what lives of the logits, by version, eager and compiled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate

TOKENS = 512
MODEL = {**LLAMA, "vocab_size": 64_000, "num_hidden_layers": 1}
WHOLE = TOKENS * MODEL["vocab_size"]


def logits(moment: str, version: str, **stack: Any) -> int:
    """Bytes of logits and what the loss makes of them at the moment's largest."""
    given = {"framework": "torchtitan", "versions": {"torchtitan": version}, "recompute": "none", **stack}
    ledger = estimate(plan_of(MODEL, batch={"micro_batch": 1, "sequence": TOKENS}, stack=given)).ledger
    live = next(one.live for one in ledger.moments if one.name == moment)
    return sum(ledger.lines[at].unit * count for at, count in live if ledger.lines[at].account == "logits_and_loss")


@pytest.mark.parametrize(
    ("version", "stack", "each"),
    [
        ("40f8fd007957", {}, 4 * 4),  # the model's fp32 logits are still named beside three of the loss's tensors
        ("5940ddeb532c", {}, 3 * 4),
        ("5940ddeb532c", {"compile": True}, 3 * 4),  # the loss is not compiled
        ("775a486", {"compile": True}, 2 * 2),
        ("775a486", {"options": {"compile": {"components": ["loss"]}}}, 2 * 2),
        ("775a486", {"compile": True, "options": {"compile": {"components": ["model"]}}}, 3 * 4),
        ("c14ab776ce87", {"loss": "chunked"}, 4 + 2 * 4 / 8),
    ],
)
def test_bytes_of_each_token_and_word_in_backward(version: str, stack: dict[str, Any], each: float) -> None:
    assert logits("step 2: backward of the loss", version, **stack) == pytest.approx(each * WHOLE, rel=0.06)

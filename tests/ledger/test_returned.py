"""What a forward returns: Accelerate's casts, and caches that GPT-BigCode kept while it recomputed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import Estimate, estimate

BIGCODE = {
    "model_type": "gpt_bigcode", "n_embd": 256, "n_layer": 4, "n_head": 4, "vocab_size": 32000, "n_positions": 512,
}  # fmt: skip
TOKENS, VOCAB, LAYERS, WIDE = 512, 32000, 4, 256 + 2 * 64


def answer(recompute: Any = "none", autocast: bool = True, **versions: str) -> Estimate:
    named = {"torch": "2.4.1", "transformers": "4.48.1", **versions}
    stack = {
        "versions": named,
        "recompute": recompute,
        "attention": "flash",
        "options": {"batch_tensors": ["input_ids"]},
    }
    precision = {"weights": "bf16", "compute": "bf16", "autocast": autocast}
    return estimate(plan_of(BIGCODE, stack=stack, precision=precision))


def loss(found: Estimate) -> int:
    return max(one.allocated for one in found.ledger.moments if one.name == "step 2: loss")


def test_accelerate_casts_the_logits_while_they_have_a_name() -> None:
    """Log-probabilities in 16 bits and their cast stay; the logits and their cast, 2 and 4 bytes, are there besides."""
    with_it, without = answer(accelerate="1.0.1"), answer()
    names = {line.name for line in with_it.ledger.lines}
    assert "logits: as Accelerate returns them" in names
    assert loss(with_it) - loss(without) == pytest.approx(4 * TOKENS * VOCAB, rel=0.01)
    assert "logits: as Accelerate returns them" not in {
        line.name for line in answer(autocast=False, accelerate="1").ledger.lines
    }


def results(found: Estimate) -> int:
    """Bytes of the fused projections' results at the loss."""
    (moment,) = [one for one in found.ledger.moments if one.name == "step 2: loss"]
    lines = [(found.ledger.lines[at], copies) for at, copies in moment.live]
    return sum(line.unit * copies for line, copies in lines if line.name.endswith("c_attn: output"))


def test_gpt_bigcode_kept_each_layers_cache_while_it_recomputed() -> None:
    full = {"kind": "full", "reentrant": True}
    before, after = answer(full), answer(full, transformers="5.24.0")
    kept = 2 * LAYERS * TOKENS * WIDE
    live = [results(found) for found in (before, after)]
    assert live[0] - live[1] == kept

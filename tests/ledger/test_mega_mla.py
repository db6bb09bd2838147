"""What attention through latents keeps, against a closed formula."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_moe import kept
from tests.ledger.test_megatron import BATCH, HEADS, HIDDEN, LLAMA, SEQUENCE, plan_of

Q, KV, STRAIGHT, TURNED, VALUE = 384, 256, 128, 64, 128
LATENT = {
    "q_lora_rank": Q,
    "kv_lora_rank": KV,
    "qk_nope_head_dim": STRAIGHT,
    "qk_rope_head_dim": TURNED,
    "v_head_dim": VALUE,
    "num_key_value_heads": None,
}
TE = {"kernels": ["te"], "attention": "fused", "versions": {"torch": "2.13.0", "transformer_engine": "2.11"}}


def saved(**model: Any) -> float:
    """Bytes of a token that a layer keeps for attention, with its own norm and residual."""
    plan = plan_of({**LLAMA, **LATENT, **model}, stack={**TE, "options": {}})
    width = LLAMA["intermediate_size"]
    dense = 2 * HIDDEN + 2 * HIDDEN + 4 + 6 * width  # the feed-forward's input, its norm, fc1's result, its function's
    return kept(plan) / (SEQUENCE * BATCH) - dense


HEAD = STRAIGHT + TURNED
CORE = HEADS * (2 * 2 * HEAD + 2 * VALUE + 2 * VALUE + 4)  # queries, keys, values, their sums, logsumexp
INPUT = 2 * HIDDEN + 4  # of its own input, which is the layer's, only the norm's result is new


def test_latents_with_norms_keep_them_before_and_after() -> None:
    latents = 2 * Q + 2 * Q + 4 + 2 * KV + 2 * KV + 4
    assert saved(qk_layernorm=True) == pytest.approx(INPUT + latents + CORE + 2 * HIDDEN, abs=2 * HIDDEN + 8)
    assert saved(qk_layernorm=True) - saved() == pytest.approx(2 * Q + 2 * KV + 8, abs=1)


def test_queries_straight_from_hidden_states_keep_no_latent() -> None:
    assert saved() - saved(q_lora_rank=None) == pytest.approx(2 * Q, abs=1)


def test_wider_values_alone_widen_values_and_output() -> None:
    assert saved(v_head_dim=VALUE + 32) - saved() == pytest.approx(HEADS * 4 * 32, abs=1)


def test_megatrons_own_layers_keep_no_copy_of_the_latent() -> None:
    own, wider = (
        kept(plan_of({**LLAMA, **LATENT, "kv_lora_rank": rank}, stack={"attention": "unfused"}))
        for rank in (KV, KV + 64)
    )
    assert (wider - own) / (SEQUENCE * BATCH) == pytest.approx(2 * 64, abs=1)
    assert saved(kv_lora_rank=KV + 64) - saved() == pytest.approx(2 * 64, abs=1)

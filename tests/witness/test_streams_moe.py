"""Layers with experts, storage by storage, against Transformers' own code."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.witness.compare import mismatches

BASE = {
    "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
}  # fmt: skip
ROUTED = {**BASE, "num_experts": 8, "num_experts_per_tok": 2}
QWEN = {**ROUTED, "intermediate_size": 320, "moe_intermediate_size": 96}
LATENT = {
    **BASE, "num_key_value_heads": 4, "intermediate_size": 320, "kv_lora_rank": 48, "q_lora_rank": 40, "v_head_dim": 16,
    "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4,
    "topk_group": 2, "moe_intermediate_size": 96, "n_shared_experts": 2, "first_k_dense_replace": 1,
}  # fmt: skip
V2 = {"model_type": "deepseek_v2", **LATENT}
V3 = {"model_type": "deepseek_v3", **LATENT}
GLM = {
    "model_type": "glm4_moe", **BASE, "head_dim": 32, "intermediate_size": 320, "n_routed_experts": 8, "n_group": 4,
    "num_experts_per_tok": 2, "topk_group": 2, "moe_intermediate_size": 96, "n_shared_experts": 2,
}  # fmt: skip
LLAMA4 = {
    "model_type": "llama4_text", **BASE, "head_dim": 32, "intermediate_size": 96, "intermediate_size_mlp": 320,
    "num_local_experts": 4,
}  # fmt: skip
GRANITE = {**BASE, "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2}
LFM2 = {
    "model_type": "lfm2_moe", **ROUTED, "intermediate_size": 320, "moe_intermediate_size": 96, "num_dense_layers": 1,
    "layer_types": ["full_attention", "conv", "conv"],
}  # fmt: skip
LINEAR, FULL = ({"layer_types": [f"{kind}_attention"] * 3} for kind in ("linear", "full"))
DELTA = {
    **BASE, "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
    "linear_value_head_dim": 48,
}  # fmt: skip
SHARED = {**DELTA, **ROUTED, "moe_intermediate_size": 96, "shared_expert_intermediate_size": 160}
NEXT = {"model_type": "qwen3_next", **SHARED, "intermediate_size": 320}
FIVE = {"model_type": "qwen3_5_text", **DELTA, "intermediate_size": 320}
# the gated delta rule and the attention between its layers; runs in fp32 are compared apart
HYBRID: dict[str, dict[str, Any]] = {
    "next": {**NEXT, **LINEAR},
    "next, gated": {**NEXT, **FULL, "attention_bias": True},
    "next, as many heads": {**NEXT, **LINEAR, "linear_num_value_heads": 2, "mlp_only_layers": [1]},
    "five": {**FIVE, **LINEAR},
    "five, gated": {**FIVE, **FULL},
    "five, experts": {"model_type": "qwen3_5_moe_text", **SHARED, **LINEAR},
}
FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral": {"model_type": "mixtral", **BASE, "intermediate_size": 320, "num_local_experts": 4},
    "qwen3": {"model_type": "qwen3_moe", **QWEN, "head_dim": 32},
    "qwen3 normalised": {"model_type": "qwen3_moe", **QWEN, "head_dim": 32, "norm_topk_prob": True},
    "qwen3 dense": {"model_type": "qwen3_moe", **QWEN, "head_dim": 32, "mlp_only_layers": [1]},
    "qwen2": {"model_type": "qwen2_moe", **QWEN, "shared_expert_intermediate_size": 160},
    "v2": {**V2, "topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0},
    "v2 straight": {**V2, "q_lora_rank": None, "attention_bias": True, "mlp_bias": True},
    "v2 dense": {**V2, "first_k_dense_replace": 2},
    "v3": V3,
    "v3 straight": {**V3, "q_lora_rank": None, "norm_topk_prob": False, "attention_bias": True},
    "v3 halves": {**V3, "rope_interleave": False, "v_head_dim": 32},
    "glm flash": {**V3, "model_type": "glm4_moe_lite", "mlp_layer_types": ["sparse"] * 3},
    "glm": {**GLM, "use_qk_norm": True, "attention_bias": True},
    "glm dense": {**GLM, "first_k_dense_replace": 2},
    "dots": {**GLM, "model_type": "dots1"},
    "solar": {**GLM, "model_type": "solar_open"},
    "minimax": {
        "model_type": "minimax_m2",
        **BASE,
        "head_dim": 32,
        "intermediate_size": 96,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "rotary_dim": 16,
    },
    "llama4": LLAMA4,
    "llama4 without norms": {**LLAMA4, "use_qk_norm": False, "num_experts_per_tok": 2, "attention_bias": True},
    "llama4 dense, bare": {**LLAMA4, "moe_layers": [0], "no_rope_layers": [1, 0, 1]},
    "llama4 bare": {**LLAMA4, "num_key_value_heads": 4, "no_rope_layers": [1, 0, 1], "attn_temperature_tuning": False},
    "llama4 chunks": {**LLAMA4, "attention_chunk_size": 16},
    "lfm2": LFM2,
    "lfm2 plain": {**LFM2, "use_expert_bias": False, "norm_topk_prob": False},
    "granite": {"model_type": "granitemoe", **GRANITE},
    "granite shared": {"model_type": "granitemoeshared", **GRANITE, "shared_intermediate_size": 160},
    "olmoe": {"model_type": "olmoe", **ROUTED, "intermediate_size": 96},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16, two": {"batch": 2},
    "fp16": {"weights": "fp16"},
    "eager, two": {"kernel": "eager", "batch": 2},
    "fp32": {"weights": "fp32", "kernel": "eager"},
    "autocast": {"weights": "fp32", "autocast": "bf16"},
    "autocast of bf16": {"autocast": "bf16"},
    "autocast, eager, two": {"weights": "fp32", "autocast": "bf16", "kernel": "eager", "batch": 2},
}

OSS = {
    "model_type": "gpt_oss", **BASE, "head_dim": 32, "intermediate_size": 96, "num_local_experts": 8,
    "num_experts_per_tok": 2, "sliding_window": 16, "layer_types": ["full_attention"] * 3,
}  # fmt: skip
SINKS: dict[str, dict[str, Any]] = {
    "full": OSS,
    "window": {**OSS, "layer_types": ["sliding_attention"] * 3},
    "one key head": {**OSS, "num_key_value_heads": 1},
    "dropout": {**OSS, "num_key_value_heads": 4, "attention_bias": False, "attention_dropout": 0.1},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_stream(family: str, setting: str) -> None:
    assert mismatches(FAMILIES[family], **SETTINGS[setting]) == []


@pytest.mark.parametrize("setting", [one for one in SETTINGS if one != "eager, two"])  # all of them run eager here
@pytest.mark.parametrize("form", SINKS)
def test_stream_with_sinks(form: str, setting: str) -> None:
    assert mismatches(SINKS[form], **{**SETTINGS[setting], "kernel": "eager"}) == []


@pytest.mark.parametrize("setting", ["bf16", "bf16, two", "fp32", "autocast, eager, two", "autocast of bf16"])
@pytest.mark.parametrize("form", HYBRID)
def test_stream_with_linear_attention(form: str, setting: str) -> None:
    """Whole chunks of 64 tokens, and whole ones with a part."""
    for sequence in (128, 150):
        assert mismatches(HYBRID[form], **SETTINGS[setting], sequence=sequence) == []

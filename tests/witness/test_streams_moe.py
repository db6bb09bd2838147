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
FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral": {"model_type": "mixtral", **BASE, "intermediate_size": 320, "num_local_experts": 4},
    "qwen3": {"model_type": "qwen3_moe", **QWEN, "head_dim": 32},
    "qwen3 normalised": {"model_type": "qwen3_moe", **QWEN, "head_dim": 32, "norm_topk_prob": True},
    "qwen3 dense": {"model_type": "qwen3_moe", **QWEN, "head_dim": 32, "mlp_only_layers": [1]},
    "qwen2": {"model_type": "qwen2_moe", **QWEN, "shared_expert_intermediate_size": 160},
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


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_stream(family: str, setting: str) -> None:
    assert mismatches(FAMILIES[family], **SETTINGS[setting]) == []

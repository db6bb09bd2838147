"""Small configs of the RMS-norm decoders, one per shape of block; layer 1 of each is compared."""

from __future__ import annotations

from typing import Any

SMALL = {
    "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "pad_token_id": None,
}  # fmt: skip

FAM: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SMALL},
    "mistral": {"model_type": "mistral", **SMALL, "head_dim": 96},
    "qwen2": {"model_type": "qwen2", **SMALL},
    "qwen3": {"model_type": "qwen3", **SMALL, "head_dim": 96},
    "gemma": {"model_type": "gemma", **SMALL, "head_dim": 96},
    "gemma2": {"model_type": "gemma2", **SMALL, "head_dim": 96},
    "gemma3": {"model_type": "gemma3_text", **SMALL, "head_dim": 96},
    "phi3": {"model_type": "phi3", **SMALL, "resid_pdrop": 0.1},
    "phi3-mha": {"model_type": "phi3", **SMALL, "num_key_value_heads": 4},
    "phi3-part": {"model_type": "phi3", **SMALL, "partial_rotary_factor": 0.75},
    "olmo2": {"model_type": "olmo2", **SMALL},
    "granite": {"model_type": "granite", **SMALL, "attention_dropout": 0.1, "residual_multiplier": 0.5},
    "cohere": {"model_type": "cohere", **SMALL},
    "cohere-qk": {"model_type": "cohere", **SMALL, "use_qk_norm": True},
    "cohere2": {"model_type": "cohere2", **SMALL},
    "cohere2-nope": {"model_type": "cohere2", **SMALL, "layer_types": ["full_attention"] * 3},
    "glm": {"model_type": "glm", **SMALL, "head_dim": 64},
    "glm4": {"model_type": "glm4", **SMALL, "head_dim": 64},
    "smollm3": {"model_type": "smollm3", **SMALL},
    "smollm3-nope": {"model_type": "smollm3", **SMALL, "no_rope_layers": [1, 0, 1]},
}

"""The families and stacks in which formula and trace are held against each other."""

from __future__ import annotations

from typing import Any

BASE = {"vocab_size": 32000, "hidden_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 8}
WIDE = {**BASE, "intermediate_size": 2816}
GROUPED = {**WIDE, "num_key_value_heads": 2}
HEADED = {**GROUPED, "head_dim": 128}
LATENT = {
    **WIDE,
    "num_key_value_heads": 8,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 16,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 352,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "tie_word_embeddings": False,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **GROUPED, "tie_word_embeddings": False},
    "mistral": {"model_type": "mistral", **GROUPED, "sliding_window": None, "tie_word_embeddings": False},
    "qwen2": {"model_type": "qwen2", **GROUPED, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", **HEADED, "tie_word_embeddings": True},
    "gemma": {"model_type": "gemma", **HEADED, "pad_token_id": 0},
    "gemma2": {"model_type": "gemma2", **HEADED, "pad_token_id": 0},
    "gemma3_text": {"model_type": "gemma3_text", **HEADED, "pad_token_id": 0, "sliding_window": 512},
    "phi3": {"model_type": "phi3", **GROUPED, "tie_word_embeddings": False, "pad_token_id": 0},
    "gpt2": {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 1024, "n_layer": 3, "n_head": 8},
    "gpt_neox": {"model_type": "gpt_neox", **WIDE},
    "opt": {"model_type": "opt", **BASE, "ffn_dim": 2816, "max_position_embeddings": 1024},
    "olmo2": {"model_type": "olmo2", **GROUPED, "pad_token_id": 1},
    "mixtral": {"model_type": "mixtral", **GROUPED, "num_local_experts": 4, "tie_word_embeddings": False},
    "qwen3_moe": {
        "model_type": "qwen3_moe", **HEADED, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 352,
    },
    "deepseek_v2": {
        "model_type": "deepseek_v2", **LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy",
    },
    "deepseek_v3": {"model_type": "deepseek_v3", **LATENT, "q_lora_rank": 384},
    "gpt_oss": {
        "model_type": "gpt_oss", **HEADED, "num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 512,
        "tie_word_embeddings": False,
    },
    "gemma4_text": {
        "model_type": "gemma4_text", **HEADED, "global_head_dim": 256, "attention_k_eq_v": True, "pad_token_id": 0,
        "num_global_key_value_heads": 1, "hidden_size_per_layer_input": 0, "sliding_window": 512,
    },
    "bert": {
        "model_type": "bert", **WIDE, "max_position_embeddings": 1024, "architectures": ["BertForMaskedLM"],
    },
}  # fmt: skip
PRECISIONS: dict[str, dict[str, Any]] = {
    "pure": {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16"},
    "autocast": {"weights": "fp32", "compute": "bf16", "autocast": True, "gradients": "fp32"},
    "fp32": {"weights": "fp32", "compute": "fp32", "autocast": False, "gradients": "fp32"},
}
RECOMPUTE: dict[str, Any] = {"none": "none", "full": {"kind": "full", "reentrant": False}}
WORDS = {"flash": "sdpa", "efficient": "mem-efficient", "eager": "eager", "package": "flash"}
NO_SDPA = ("gemma2", "gpt_oss")  # Transformers refuses PyTorch's own call for them
NO_PACKAGE = ("gpt_oss",)  # and this one's sinks are not among what flash-attn 2 knows


def stacks() -> list[tuple[str, str, str, str]]:
    """Family, attention, recompute, precision: every one of each, and of the whole product every third."""
    every = [
        (family, attention, recompute, precision)
        for family in FAMILIES
        for attention in WORDS
        for recompute in RECOMPUTE
        for precision in PRECISIONS
        if not (family in NO_SDPA and attention in ("flash", "efficient"))
        if not (attention == "package" and (precision == "fp32" or family in NO_PACKAGE))
    ]
    return [stack for number, stack in enumerate(every) if number % 3 == number // 3 % 3]

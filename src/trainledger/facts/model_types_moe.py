"""Mixture-of-experts decoders."""

from __future__ import annotations

from typing import Any

from trainledger.facts.model_type_row import ModelType, row


def _sizes(vocab: int, hidden: int, ffn: int, layers: int, heads: int) -> dict[str, Any]:
    """The sizes that every decoder's config class states, under their key names (elements and counts)."""
    return {
        "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
        "num_attention_heads": heads, "hidden_act": "silu", "attention_dropout": 0.0, "tie_word_embeddings": False,
        "output_router_logits": False, "router_jitter_noise": 0.0,
    }  # fmt: skip


_QWEN: dict[str, Any] = {
    "use_sliding_window": False, "sliding_window": 4096, "decoder_sparse_step": 1, "norm_topk_prob": False,
}  # fmt: skip
_MLA: dict[str, Any] = {
    "attention_bias": False, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
_V3 = {
    **_sizes(129280, 7168, 18432, 61, 128), **_MLA, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3, "n_group": 8,
}  # fmt: skip
_DELTA: dict[str, Any] = {
    "head_dim": 256, "attention_bias": False, "partial_rotary_factor": 0.25, "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}  # fmt: skip
_SHARED: dict[str, Any] = {
    **_DELTA, "num_key_value_heads": 2, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
}  # fmt: skip

ROWS: tuple[ModelType, ...] = (
    row("mixtral", "mixtral", **_sizes(32000, 4096, 14336, 32, 32), num_key_value_heads=8, num_local_experts=8,
        num_experts_per_tok=2),
    row("qwen2_moe", "qwen_moe", **_sizes(151936, 2048, 5632, 24, 16), **_QWEN, num_key_value_heads=16,
        qkv_bias=True, max_window_layers=28, moe_intermediate_size=1408, shared_expert_intermediate_size=5632,
        num_experts=60, num_experts_per_tok=4),
    row("qwen3_moe", "qwen_moe", **_sizes(151936, 2048, 6144, 24, 32), **_QWEN, num_key_value_heads=4,
        attention_bias=False, moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8),
    row("qwen3_vl_moe_text", "qwen_moe", "qwen3_vl_moe", **{**_sizes(151936, 2048, 5632, 24, 16), **_QWEN},
        num_key_value_heads=16, attention_bias=False, moe_intermediate_size=1408, num_experts=60,
        num_experts_per_tok=4),
    row("qwen3_next", "qwen3_next", **_sizes(151936, 2048, 5632, 48, 16), **_SHARED, decoder_sparse_step=1,
        norm_topk_prob=True, num_experts=512, num_experts_per_tok=10),
    row("qwen3_5_moe_text", "qwen3_next", "qwen3_5_moe", **_sizes(248320, 2048, 0, 40, 16), **_SHARED,
        num_experts=256, num_experts_per_tok=8),
    row("qwen3_5_text", "qwen3_next", "qwen3_5", **_sizes(248320, 4096, 12288, 32, 16), **_DELTA,
        num_key_value_heads=4),
    *(
        row(name, "granite", **{**_sizes(32000, 4096, 11008, 32, 32), "attention_bias": False}, num_local_experts=8,
            num_experts_per_tok=2, shared_intermediate_size=0)
        for name in ("granitemoe", "granitemoeshared")
    ),
    row("olmoe", "olmoe", **_sizes(50304, 2048, 2048, 16, 16), attention_bias=False, num_experts=64,
        num_experts_per_tok=8, norm_topk_prob=False),
    row("deepseek_v2", "deepseek", **_sizes(102400, 4096, 11008, 32, 32), **_MLA, mlp_bias=False,
        moe_intermediate_size=1407, n_routed_experts=64, n_shared_experts=2, first_k_dense_replace=0),
    row("deepseek_v3", "deepseek", **_V3),
    row("kimi_k2", "deepseek", "deepseek_v3", **_V3),
    row("glm4_moe_lite", "deepseek", **_sizes(154880, 2048, 10240, 47, 20),
        **{**_MLA, "q_lora_rank": 768, "v_head_dim": 256, "qk_nope_head_dim": 192}, moe_intermediate_size=1536,
        n_routed_experts=64, num_experts_per_tok=4, n_shared_experts=1, first_k_dense_replace=1, n_group=1),
    row("glm4_moe", "glm_moe", **_sizes(151552, 4096, 10944, 46, 96), num_key_value_heads=8, attention_bias=False,
        moe_intermediate_size=1408, num_experts_per_tok=8, n_shared_experts=1, n_routed_experts=128, n_group=1,
        topk_group=1, first_k_dense_replace=1, norm_topk_prob=True, use_qk_norm=False, num_mtp_layers=1,
        partial_rotary_factor=0.5),
    row("dots1", "glm_moe", **_sizes(152064, 4608, 10944, 62, 32), num_key_value_heads=32, attention_bias=False,
        moe_intermediate_size=1408, n_group=1, topk_group=1, first_k_dense_replace=0, norm_topk_prob=False,
        sliding_window=4096, max_window_layers=62),
    row("solar_open", "glm_moe", **_sizes(196608, 4096, 10240, 48, 64), num_key_value_heads=8, head_dim=128,
        attention_bias=False, moe_intermediate_size=1280, num_experts_per_tok=8, n_shared_experts=1,
        n_routed_experts=128, n_group=1, topk_group=1, first_k_dense_replace=0, norm_topk_prob=True),
    row("lfm2_moe", "lfm2", **{**_sizes(65536, 2048, 7168, 32, 32), "tie_word_embeddings": True},
        num_key_value_heads=8, moe_intermediate_size=1792, num_dense_layers=2, num_experts_per_tok=4, num_experts=32,
        use_expert_bias=True, norm_topk_prob=True, conv_bias=False, conv_L_cache=3),
    row("minimax_m2", "minimax", **_sizes(200064, 3072, 1536, 62, 48), num_key_value_heads=8, head_dim=128,
        num_experts_per_tok=8, num_local_experts=256),
    row("gpt_oss", "gpt_oss", **_sizes(201088, 2880, 2880, 36, 64), num_key_value_heads=8, head_dim=64,
        attention_bias=True, sliding_window=128, num_local_experts=128, num_experts_per_tok=4),
    row("llama4_text", "llama4", "llama4", **_sizes(202048, 5120, 8192, 48, 40), num_key_value_heads=8,
        head_dim=128, attention_bias=False, intermediate_size_mlp=16384, num_local_experts=16,
        num_experts_per_tok=1, interleave_moe_layer_step=1, no_rope_layer_interval=4, attention_chunk_size=8192,
        use_qk_norm=True, attn_temperature_tuning=True),
)  # fmt: skip

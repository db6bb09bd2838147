"""Alibaba's mixture-of-experts Qwen 1.5, 2, 3 and 3-Next."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row, shape

_QWEN2: Keys = {
    "model_type": "qwen2_moe", "vocab_size": 151936, "hidden_act": "silu", "tie_word_embeddings": False,
    "decoder_sparse_step": 1, "mlp_only_layers": (),
}  # fmt: skip
_QWEN3: Keys = {
    "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_act": "silu", "tie_word_embeddings": False,
    "head_dim": 128, "attention_bias": False, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1,
    "mlp_only_layers": (),
}  # fmt: skip

ENTRIES: tuple[Entry, ...] = (
    row("qwen1.5-moe-a2.7b", "Qwen/Qwen1.5-MoE-A2.7B", "2024-03", 14315784192, {
        **_QWEN2, **shape(2048, 24, 16, 16, 5632), "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
    }),
    row("qwen2-57b-a14b", "Qwen/Qwen2-57B-A14B", "2024-06", 57408658944, {
        **_QWEN2, **shape(3584, 28, 28, 4, 18944), "moe_intermediate_size": 2560,
        "shared_expert_intermediate_size": 20480, "num_experts": 64, "num_experts_per_tok": 8,
    }),
    row("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", "2025-04", 30532122624,
        {**_QWEN3, **shape(2048, 48, 32, 4, 6144), "moe_intermediate_size": 768}),
    row("qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B", "2025-04", 235093634560,
        {**_QWEN3, **shape(4096, 94, 64, 4, 12288), "moe_intermediate_size": 1536}),
    row("qwen3-coder-480b-a35b", "Qwen/Qwen3-Coder-480B-A35B-Instruct", "2025-07", 480154875392,
        {**_QWEN3, **shape(6144, 62, 96, 8, 8192), "moe_intermediate_size": 2560, "num_experts": 160}),
    # sizes of Qwen3NextConfig (transformers 5.24.0), whose feed-forward width no layer has; the model's page counts the
    # layer that predicts a further token, which Transformers leaves out
    row("qwen3-next-80b-a3b", "Qwen/Qwen3-Next-80B-A3B-Instruct", "2025-09", None, {
        **shape(2048, 48, 16, 2, 5632), "model_type": "qwen3_next", "vocab_size": 151936, "hidden_act": "silu",
        "tie_word_embeddings": False, "head_dim": 256, "attention_bias": False, "partial_rotary_factor": 0.25,
        "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512,
        "num_experts_per_tok": 10, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "decoder_sparse_step": 1, "mlp_only_layers": (), "norm_topk_prob": True,
    }),
)  # fmt: skip

"""DeepSeek V2, V3 and R1, and Moonshot's Kimi K2, which has V3's architecture (its file says `kimi_k2`).

The weights indexes of V3, R1 and Kimi K2 also count the routers' correction biases (one per routed expert and layer; a
buffer, no weight) and, of V3 and R1, the head for a further token; `parameters` leaves both out.
"""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row, shape

_MLA: Keys = {
    "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_layer_freq": 1,
}  # fmt: skip
_V2: Keys = {
    "model_type": "deepseek_v2", **_MLA, "vocab_size": 102400, "first_k_dense_replace": 1, "n_shared_experts": 2,
    "num_experts_per_tok": 6,
}  # fmt: skip
_V2_FULL: Keys = {
    **_V2, **shape(5120, 60, 128, 128, 12288), "q_lora_rank": 1536, "moe_intermediate_size": 1536,
    "n_routed_experts": 160, "n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy",
}  # fmt: skip
_V2_LITE: Keys = {
    **_V2, **shape(2048, 27, 16, 16, 10944), "q_lora_rank": None, "moe_intermediate_size": 1408,
    "n_routed_experts": 64, "n_group": 1, "topk_group": 1, "topk_method": "greedy",
}  # fmt: skip
_V3: Keys = {
    "model_type": "deepseek_v3", **_MLA, **shape(7168, 61, 128, 128, 18432), "vocab_size": 129280,
    "q_lora_rank": 1536, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4,
    "num_nextn_predict_layers": 1,
}  # fmt: skip
_K2: Keys = {
    **_V3, "vocab_size": 163840, "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 0,
}  # fmt: skip

ENTRIES: tuple[Entry, ...] = (
    row("deepseek-v2", "deepseek-ai/DeepSeek-V2", "2024-05", 235741434880, _V2_FULL),
    row("deepseek-v2-lite", "deepseek-ai/DeepSeek-V2-Lite", "2024-05", 15706484224, _V2_LITE),
    row("deepseek-v3", "deepseek-ai/DeepSeek-V3-Base", "2024-12", 671026404352, _V3),
    row("deepseek-r1", "deepseek-ai/DeepSeek-R1", "2025-01", 671026404352, _V3),
    row("kimi-k2", "moonshotai/Kimi-K2-Base", "2025-07", 1026408209408, _K2),
)  # fmt: skip

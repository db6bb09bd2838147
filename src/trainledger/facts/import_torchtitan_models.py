"""torchtitan's models: the shape of each family's flavours, and the attention that an ending of their names asks for.

Read in source: torchtitan/models/*/__init__.py (2024-04 to 2026-08).
"""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_words import WordRow, words

_LLAMA3 = {"model_type": "llama", "tie_word_embeddings": False}
DEBUG = {
    **_LLAMA3,
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 768,
    "vocab_size": 2048,
}
DEBUG_QWEN = {
    "model_type": "qwen3",
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 2048,
    "tie_word_embeddings": True,
}
DEEPSEEK_16B = {
    "model_type": "deepseek_v3",
    "hidden_size": 2048,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 10944,
    "vocab_size": 102400,
    "tie_word_embeddings": False,
    "num_experts": 64,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
DEBUG_DEEPSEEK = {
    **DEEPSEEK_16B,
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "intermediate_size": 1024,
    "vocab_size": 2048,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 256,
}
DEEPSEEK_236B = {
    **DEEPSEEK_16B,
    "hidden_size": 5120,
    "num_hidden_layers": 60,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 12288,
    "num_experts": 160,
    "moe_intermediate_size": 1536,
    "q_lora_rank": 1536,
}
DEBUG_QWEN_MOE = {
    **DEBUG_QWEN,
    "model_type": "qwen3_moe",
    "tie_word_embeddings": False,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
DEBUG_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "vocab_size": 2048,
    "tie_word_embeddings": False,
    "num_experts": 8,
    "num_experts_per_tok": 4,
}
_FLAVOURS = Source("torchtitan", "models/*/__init__.py, flavours by model", "0.0.2 to 0.2.2, 2026-08")
# Family and flavour, in lower case, and the catalogue's model; an ending of ATTENTIONS is taken off before.
MODELS: dict[str, WordRow] = {
    **words(
        _FLAVOURS,
        (
            *(
                (f"{name}/{size}", f"llama-3.1-{size}")
                for name in ("llama3", "llama")
                for size in ("8b", "70b", "405b")
            ),
            *((f"llama3/{size}", f"llama-3.2-{size}") for size in ("1b", "3b")),
            *((f"llama2/{size}", f"llama-2-{size}") for size in ("7b", "13b", "70b")),
            *((f"qwen3/{size}", f"qwen3-{size}") for size in "0.6b 1.7b 4b 8b 14b 32b 30b-a3b 235b-a22b".split()),
            ("deepseek_v3/671b", "deepseek-v3"),
            ("gpt_oss/20b", "gpt-oss-20b"),
            ("gpt_oss/120b", "gpt-oss-120b"),
            ("llama4/17bx16e", "llama-4-scout-text"),
            ("llama4/17bx128e", "llama-4-maverick-text"),
        ),
    ),
    **{f"{name}/debugmodel": WordRow(f"{name}/debugmodel", "", _FLAVOURS, DEBUG) for name in ("llama3", "llama")},
    "qwen3/debugmodel": WordRow("qwen3/debugmodel", "", _FLAVOURS, DEBUG_QWEN),
    "deepseek_v3/debugmodel": WordRow("deepseek_v3/debugmodel", "", _FLAVOURS, DEBUG_DEEPSEEK),
    "qwen3/debugmodel_moe": WordRow("qwen3/debugmodel_moe", "", _FLAVOURS, DEBUG_QWEN_MOE),
    "gpt_oss/debugmodel": WordRow("gpt_oss/debugmodel", "", _FLAVOURS, DEBUG_OSS),
    "deepseek_v3/16b": WordRow("deepseek_v3/16b", "", _FLAVOURS, DEEPSEEK_16B),
    "deepseek_v3/236b": WordRow("deepseek_v3/236b", "", _FLAVOURS, DEEPSEEK_236B),
}
ATTENTIONS: dict[str, WordRow] = words(
    _FLAVOURS, (("_flex_attn", "flex"), ("_flex", "flex"), ("_varlen_attn", "flash"), ("_varlen", "flash"))
)

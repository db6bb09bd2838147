"""GPT-J, CodeGen, StableLM, Persimmon, Nemotron and the first OLMo: rotary decoders with LayerNorms."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import WIDE, Entry, Keys, row, shape

_GPTJ: Keys = {
    "activation_function": "gelu_new", "tie_word_embeddings": False, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "attn_pdrop": 0.0, "n_positions": 2048,
}  # fmt: skip
_STABLE: Keys = {
    "model_type": "stablelm", "hidden_act": "silu", "tie_word_embeddings": False, "partial_rotary_factor": 0.25,
    "qk_layernorm": False, "use_parallel_residual": False, "hidden_dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
_3B: Keys = {**_STABLE, **shape(2560, 32, 32, 32, 6912), "vocab_size": 50304, "use_qkv_bias": False}
_NEMOTRON: Keys = {
    "model_type": "nemotron", "vocab_size": 256000, "hidden_act": "relu2", "tie_word_embeddings": False,
    "partial_rotary_factor": 0.5, "attention_bias": False, "mlp_bias": False,
}  # fmt: skip
_OLMO: Keys = {
    **WIDE, "model_type": "olmo", "vocab_size": 50304, "hidden_act": "silu", "attention_bias": False, "clip_qkv": None,
}  # fmt: skip


def _codegen(size: str, hidden: int, layers: int, heads: int, rotary: int) -> Entry:
    keys = {**_GPTJ, "model_type": "codegen", "vocab_size": 51200, "n_embd": hidden, "n_layer": layers, "n_head": heads,
            "rotary_dim": rotary}  # fmt: skip
    return row(f"codegen-{size.lower()}", f"Salesforce/codegen-{size}-mono", "2022-03", None, keys)


ENTRIES: tuple[Entry, ...] = (
    row("gpt-j-6b", "EleutherAI/gpt-j-6b", "2021-06", 6050882784, {
        **_GPTJ, **WIDE, "model_type": "gptj", "vocab_size": 50400, "n_embd": 4096, "n_layer": 28, "n_head": 16,
        "rotary_dim": 64,
    }),
    _codegen("350M", 1024, 20, 16, 32),
    _codegen("2B", 2560, 32, 32, 64),
    _codegen("6B", 4096, 33, 16, 64),
    _codegen("16B", 6144, 34, 24, 64),
    row("stablelm-3b-4e1t", "stabilityai/stablelm-3b-4e1t", "2023-09", 2795443200, _3B),
    row("stablelm-zephyr-3b", "stabilityai/stablelm-zephyr-3b", "2023-11", 2795443200, _3B),
    row("stablelm-2-1.6b", "stabilityai/stablelm-2-1_6b", "2024-01", 1644515328, {
        **_STABLE, **shape(2048, 24, 32, 32, 5632), "vocab_size": 100352, "use_qkv_bias": True,
    }),
    row("persimmon-8b", "adept/persimmon-8b-base", "2023-09", None, {
        "model_type": "persimmon", "vocab_size": 262144, "hidden_size": 4096, "intermediate_size": 16384,
        "num_hidden_layers": 36, "num_attention_heads": 64, "hidden_act": "relu2", "tie_word_embeddings": False,
        "qk_layernorm": True, "partial_rotary_factor": 0.5, "hidden_dropout": 0.0, "attention_dropout": 0.0,
    }),
    row("minitron-4b", "nvidia/Minitron-4B-Base", "2024-07", None, {
        **_NEMOTRON, **shape(3072, 32, 24, 8, 9216), "head_dim": 128,
    }),
    row("nemotron-4-340b", "nvidia/Nemotron-4-340B-Base", "2024-06", None, {
        **_NEMOTRON, **shape(18432, 96, 96, 8, 73728), "head_dim": 192,
    }),
    row("olmo-1b", "allenai/OLMo-1B-hf", "2024-04", 1176764416, {
        **_OLMO, **shape(2048, 16, 16, 16, 8192), "tie_word_embeddings": True,
    }),
    row("olmo-7b", "allenai/OLMo-7B-hf", "2024-04", 6888095744, {
        **_OLMO, **shape(4096, 32, 32, 32, 11008), "tie_word_embeddings": False,
    }),
)  # fmt: skip

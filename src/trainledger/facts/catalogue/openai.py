"""OpenAI's GPT-2 (with its distilled copy) and gpt-oss."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import WIDE, Entry, Keys, row, shape

_GPT2: Keys = {
    **WIDE, "model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "activation_function": "gelu_new",
    "tie_word_embeddings": True, "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1,
}  # fmt: skip
_OSS: Keys = {
    "model_type": "gpt_oss", "vocab_size": 201088, "hidden_act": "silu", "tie_word_embeddings": False, "head_dim": 64,
    "attention_bias": True, "num_experts_per_tok": 4, "sliding_window": 128,
}  # fmt: skip


def _alternating(layers: int) -> tuple[str, ...]:
    return ("sliding_attention", "full_attention") * (layers // 2)


ENTRIES: tuple[Entry, ...] = (
    row("distilgpt2", "distilbert/distilgpt2", "2019-10", 81912576,
        {**_GPT2, "n_embd": 768, "n_layer": 6, "n_head": 12}),
    row("gpt2", "openai-community/gpt2", "2019-02", 124439808, {**_GPT2, "n_embd": 768, "n_layer": 12, "n_head": 12}),
    row("gpt2-medium", "openai-community/gpt2-medium", "2019-05", 354823168,
        {**_GPT2, "n_embd": 1024, "n_layer": 24, "n_head": 16}),
    row("gpt2-large", "openai-community/gpt2-large", "2019-08", 774030080,
        {**_GPT2, "n_embd": 1280, "n_layer": 36, "n_head": 20}),
    row("gpt2-xl", "openai-community/gpt2-xl", "2019-11", 1557611200,
        {**_GPT2, "n_embd": 1600, "n_layer": 48, "n_head": 25}),
    row("gpt-oss-20b", "openai/gpt-oss-20b", "2025-08", 20914757184,
        {**_OSS, **shape(2880, 24, 64, 8, 2880), "num_local_experts": 32, "layer_types": _alternating(24)}),
    row("gpt-oss-120b", "openai/gpt-oss-120b", "2025-08", 116829156672,
        {**_OSS, **shape(2880, 36, 64, 8, 2880), "num_local_experts": 128, "layer_types": _alternating(36)}),
)  # fmt: skip

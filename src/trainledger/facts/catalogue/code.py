"""Code models of BigCode and IBM: StarCoder (multi-query GPT), StarCoder 2, Granite Code's multi-query sizes."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import WIDE, Entry, Keys, row, shape

_GPT: Keys = {
    "model_type": "gpt_bigcode", "vocab_size": 49152, "n_positions": 8192, "multi_query": True,
    "activation_function": "gelu_pytorch_tanh", "tie_word_embeddings": True, "attn_pdrop": 0.1, "embd_pdrop": 0.1,
    "resid_pdrop": 0.1,
}  # fmt: skip
_STARCODER2: Keys = {
    "model_type": "starcoder2", "vocab_size": 49152, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True,
    "use_bias": True, "sliding_window": 4096, "attention_dropout": 0.1, "embedding_dropout": 0.1,
    "residual_dropout": 0.1,
}  # fmt: skip


def _sized(hidden: int, layers: int, heads: int) -> Keys:
    return {**_GPT, "n_embd": hidden, "n_layer": layers, "n_head": heads, "n_inner": 4 * hidden}


ENTRIES: tuple[Entry, ...] = (
    row("santacoder", "bigcode/gpt_bigcode-santacoder", "2022-12", 1124886528,
        {**_sized(2048, 24, 16), "n_positions": 2048, "vocab_size": 49280}),
    row("starcoderbase-1b", "bigcode/starcoderbase-1b", "2023-07", 1137207296, {**_sized(2048, 24, 16), **WIDE}),
    row("starcoderbase-3b", "bigcode/starcoderbase-3b", "2023-07", None, {**_sized(2816, 36, 22), **WIDE}),
    row("starcoderbase-7b", "bigcode/starcoderbase-7b", "2023-07", None, {**_sized(4096, 42, 32), **WIDE}),
    row("starcoderbase", "bigcode/starcoderbase", "2023-05", 15517456384, {**_sized(6144, 40, 48), **WIDE}),
    row("granite-20b-code", "ibm-granite/granite-20b-code-base-8k", "2024-05", None, _sized(6144, 52, 48)),
    row("granite-34b-code", "ibm-granite/granite-34b-code-base-8k", "2024-05", None, _sized(6144, 88, 48)),
    row("starcoder2-3b", "bigcode/starcoder2-3b", "2024-02", 3030371328,
        {**_STARCODER2, **WIDE, **shape(3072, 30, 24, 2, 12288)}),
    row("starcoder2-7b", "bigcode/starcoder2-7b", "2024-02", None, {**_STARCODER2, **shape(4608, 32, 36, 4, 18432)}),
    row("starcoder2-15b", "bigcode/starcoder2-15b", "2024-02", 15957889024,
        {**_STARCODER2, **shape(6144, 40, 48, 4, 24576), "tie_word_embeddings": False}),
)  # fmt: skip

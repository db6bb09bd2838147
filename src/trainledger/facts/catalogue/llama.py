"""Meta's Llama 1 to 4, and Code Llama. Of Llama 4 the text model alone, without the vision tower."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row, shape

_LLAMA1: Keys = {"model_type": "llama", "vocab_size": 32000, "hidden_act": "silu", "tie_word_embeddings": False}
_CODE: Keys = {**_LLAMA1, "vocab_size": 32016}
_LLAMA3: Keys = {**_LLAMA1, "vocab_size": 128256}
_TIED: Keys = {**_LLAMA3, "tie_word_embeddings": True}
_8B: Keys = {**_LLAMA3, **shape(4096, 32, 32, 8, 14336)}
_70B: Keys = {**_LLAMA3, **shape(8192, 80, 64, 8, 28672)}
_LLAMA4: Keys = {
    "model_type": "llama4_text", "vocab_size": 202048, "hidden_act": "silu", "tie_word_embeddings": False,
    **shape(5120, 48, 40, 8, 8192), "head_dim": 128, "intermediate_size_mlp": 16384, "num_experts_per_tok": 1,
    "attention_chunk_size": 8192, "attention_bias": False,
}  # fmt: skip
_SCOUT: Keys = {**_LLAMA4, "num_local_experts": 16, "interleave_moe_layer_step": 1, "use_qk_norm": True}
_MAVERICK: Keys = {**_LLAMA4, "num_local_experts": 128, "interleave_moe_layer_step": 2, "use_qk_norm": False}

ENTRIES: tuple[Entry, ...] = (
    row("llama-7b", "huggyllama/llama-7b", "2023-02", 6738415616, {**_LLAMA1, **shape(4096, 32, 32, 32, 11008)}),
    row("llama-13b", "huggyllama/llama-13b", "2023-02", 13015864320, {**_LLAMA1, **shape(5120, 40, 40, 40, 13824)}),
    row("llama-30b", "huggyllama/llama-30b", "2023-02", 32528943616, {**_LLAMA1, **shape(6656, 60, 52, 52, 17920)}),
    row("llama-65b", "huggyllama/llama-65b", "2023-02", 65285660672, {**_LLAMA1, **shape(8192, 80, 64, 64, 22016)}),
    row("llama-2-7b", "meta-llama/Llama-2-7b-hf", "2023-07", 6738415616,
        {**_LLAMA1, **shape(4096, 32, 32, 32, 11008)}),
    row("llama-2-13b", "meta-llama/Llama-2-13b-hf", "2023-07", 13015864320,
        {**_LLAMA1, **shape(5120, 40, 40, 40, 13824)}),
    row("llama-2-70b", "meta-llama/Llama-2-70b-hf", "2023-07", 68976648192,
        {**_LLAMA1, **shape(8192, 80, 64, 8, 28672)}),
    row("codellama-7b", "codellama/CodeLlama-7b-hf", "2023-08", 6738546688,
        {**_CODE, **shape(4096, 32, 32, 32, 11008)}),
    row("codellama-13b", "codellama/CodeLlama-13b-hf", "2023-08", 13016028160,
        {**_CODE, **shape(5120, 40, 40, 40, 13824)}),
    row("codellama-34b", "codellama/CodeLlama-34b-hf", "2023-08", 33743970304,
        {**_LLAMA1, **shape(8192, 48, 64, 8, 22016)}),
    row("llama-3-8b", "meta-llama/Meta-Llama-3-8B", "2024-04", 8030261248, _8B),
    row("llama-3-70b", "meta-llama/Meta-Llama-3-70B", "2024-04", 70553706496, _70B),
    row("llama-3.1-8b", "meta-llama/Llama-3.1-8B", "2024-07", 8030261248, _8B),
    row("llama-3.1-70b", "meta-llama/Llama-3.1-70B", "2024-07", 70553706496, _70B),
    row("llama-3.1-405b", "meta-llama/Llama-3.1-405B", "2024-07", 405853388800,
        {**_LLAMA3, **shape(16384, 126, 128, 8, 53248)}),
    row("llama-3.2-1b", "meta-llama/Llama-3.2-1B", "2024-09", 1235814400,
        {**_TIED, **shape(2048, 16, 32, 8, 8192), "head_dim": 64}),
    row("llama-3.2-3b", "meta-llama/Llama-3.2-3B", "2024-09", 3212749824,
        {**_TIED, **shape(3072, 28, 24, 8, 8192), "head_dim": 128}),
    row("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct", "2024-12", 70553706496, _70B),
    row("llama-4-scout-text", "meta-llama/Llama-4-Scout-17B-16E", "2025-04", 107769861120, _SCOUT),
    row("llama-4-maverick-text", "meta-llama/Llama-4-Maverick-17B-128E", "2025-04", 400711848960, _MAVERICK),
)  # fmt: skip

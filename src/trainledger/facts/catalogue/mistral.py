"""Mistral AI: dense models and Mixtral."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row, shape

_MISTRAL: Keys = {
    "model_type": "mistral", "vocab_size": 32768, "hidden_act": "silu", "tie_word_embeddings": False,
    "sliding_window": None,
}  # fmt: skip
_7B: Keys = {**_MISTRAL, **shape(4096, 32, 32, 8, 14336)}
_MIXTRAL: Keys = {
    "model_type": "mixtral", "vocab_size": 32000, "hidden_act": "silu", "tie_word_embeddings": False,
    "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip

ENTRIES: tuple[Entry, ...] = (
    row("mistral-7b-v0.1", "mistralai/Mistral-7B-v0.1", "2023-09", 7241732096,
        {**_7B, "vocab_size": 32000, "sliding_window": 4096}),
    row("mistral-7b-v0.2", "mistralai/Mistral-7B-Instruct-v0.2", "2023-12", 7241732096, {**_7B, "vocab_size": 32000}),
    row("mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3", "2024-05", 7248023552, _7B),
    row("mistral-nemo-12b", "mistralai/Mistral-Nemo-Base-2407", "2024-07", 12247782400,
        {**_MISTRAL, **shape(5120, 40, 32, 8, 14336), "vocab_size": 131072, "head_dim": 128}),
    row("mistral-small-24b", "mistralai/Mistral-Small-24B-Base-2501", "2025-01", 23572403200,
        {**_MISTRAL, **shape(5120, 40, 32, 8, 32768), "vocab_size": 131072, "head_dim": 128}),
    row("mistral-large-123b", "mistralai/Mistral-Large-Instruct-2407", "2024-07", 122610069504,
        {**_MISTRAL, **shape(12288, 88, 96, 8, 28672), "head_dim": 128}),
    row("zephyr-7b-beta", "HuggingFaceH4/zephyr-7b-beta", "2023-10", 7241732096,
        {**_7B, "vocab_size": 32000, "sliding_window": 4096}),
    row("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", "2023-12", 46702792704,
        {**_MIXTRAL, **shape(4096, 32, 32, 8, 14336)}),
    row("mixtral-8x22b", "mistralai/Mixtral-8x22B-v0.1", "2024-04", 140620634112,
        {**_MIXTRAL, **shape(6144, 56, 48, 8, 16384)}),
)  # fmt: skip

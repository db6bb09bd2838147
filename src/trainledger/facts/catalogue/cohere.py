"""Cohere's Command R and Aya."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row, shape

_COHERE: Keys = {
    "model_type": "cohere", "vocab_size": 256000, "hidden_act": "silu", "tie_word_embeddings": True,
    "use_qk_norm": False, "attention_bias": False,
}  # fmt: skip

ENTRIES: tuple[Entry, ...] = (
    row("command-r", "CohereLabs/c4ai-command-r-v01", "2024-03", 34980831232,
        {**_COHERE, **shape(8192, 40, 64, 64, 22528)}),
    row("command-r-08-2024", "CohereLabs/c4ai-command-r-08-2024", "2024-08", 32296476672,
        {**_COHERE, **shape(8192, 40, 64, 8, 24576)}),
    row("command-r-plus", "CohereLabs/c4ai-command-r-plus", "2024-04", 103810674688,
        {**_COHERE, **shape(12288, 64, 96, 8, 33792), "use_qk_norm": True}),
    row("aya-23-8b", "CohereLabs/aya-23-8B", "2024-05", 8028033024, {**_COHERE, **shape(4096, 32, 32, 8, 14336)}),
    row("aya-23-35b", "CohereLabs/aya-23-35B", "2024-05", 34980831232, {**_COHERE, **shape(8192, 40, 64, 64, 22528)}),
)  # fmt: skip

"""Ai2's OLMo 2 and OLMoE."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import WIDE, Entry, Keys, row, shape

_OLMO2: Keys = {
    "model_type": "olmo2", "vocab_size": 100352, "hidden_act": "silu", "tie_word_embeddings": False,
    "attention_bias": False,
}  # fmt: skip
_WIDE2: Keys = {**_OLMO2, **WIDE}

ENTRIES: tuple[Entry, ...] = (
    row("olmo-2-1b", "allenai/OLMo-2-0425-1B", "2025-04", 1484916736, {**_WIDE2, **shape(2048, 16, 16, 16, 8192)}),
    row("olmo-2-7b", "allenai/OLMo-2-1124-7B", "2024-11", 7298617344, {**_WIDE2, **shape(4096, 32, 32, 32, 11008)}),
    row("olmo-2-13b", "allenai/OLMo-2-1124-13B", "2024-11", 13716198400, {**_WIDE2, **shape(5120, 40, 40, 40, 13824)}),
    row("olmo-2-32b", "allenai/OLMo-2-0325-32B", "2025-03", 32234279936, {**_OLMO2, **shape(5120, 64, 40, 8, 27648)}),
    row("olmoe-1b-7b", "allenai/OLMoE-1B-7B-0924", "2024-09", 6919161856, {
        "model_type": "olmoe", "vocab_size": 50304, "hidden_act": "silu", "tie_word_embeddings": False,
        "attention_bias": False, **shape(2048, 16, 16, 16, 1024), "num_experts": 64, "num_experts_per_tok": 8,
    }),
)  # fmt: skip

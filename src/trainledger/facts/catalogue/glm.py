"""Zhipu's GLM-4."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row, shape

_GLM: Keys = {
    "model_type": "glm", "vocab_size": 151552, "hidden_act": "silu", "tie_word_embeddings": False, "head_dim": 128,
    "attention_bias": True, "partial_rotary_factor": 0.5,
}  # fmt: skip
_GLM4: Keys = {**_GLM, "model_type": "glm4"}

ENTRIES: tuple[Entry, ...] = (
    row("glm-4-9b", "zai-org/glm-4-9b-hf", "2024-06", 9399951360, {**_GLM, **shape(4096, 40, 32, 2, 13696)}),
    row("glm-4-9b-0414", "zai-org/GLM-4-9B-0414", "2025-04", 9400279040, {**_GLM4, **shape(4096, 40, 32, 2, 13696)}),
    row("glm-4-32b-0414", "zai-org/GLM-4-32B-0414", "2025-04", None,
        {**_GLM4, **shape(6144, 61, 48, 2, 23040), "attention_bias": False}),
)  # fmt: skip

"""Microsoft's Phi 1 to 4."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row, shape

_PHI: Keys = {
    "model_type": "phi", "vocab_size": 51200, "hidden_act": "gelu_new", "tie_word_embeddings": False,
    "qk_layernorm": False, "attention_dropout": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
}  # fmt: skip
_PHI1: Keys = {**_PHI, **shape(2048, 24, 32, 32, 8192), "partial_rotary_factor": 0.5}
_PHI3: Keys = {
    "model_type": "phi3", "vocab_size": 32064, "hidden_act": "silu", "tie_word_embeddings": False,
    "partial_rotary_factor": 1.0, "attention_dropout": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
}  # fmt: skip
_MINI: Keys = {**_PHI3, **shape(3072, 32, 32, 32, 8192)}

ENTRIES: tuple[Entry, ...] = (
    row("phi-1", "microsoft/phi-1", "2023-06", 1418270720, _PHI1),
    row("phi-1.5", "microsoft/phi-1_5", "2023-09", 1418270720, _PHI1),
    row("phi-2", "microsoft/phi-2", "2023-12", 2779683840,
        {**_PHI, **shape(2560, 32, 32, 32, 10240), "partial_rotary_factor": 0.4, "resid_pdrop": 0.1}),
    row("phi-3-mini", "microsoft/Phi-3-mini-4k-instruct", "2024-04", 3821079552, {**_MINI, "sliding_window": 2047}),
    row("phi-3-medium", "microsoft/Phi-3-medium-4k-instruct", "2024-05", 13960238080,
        {**_PHI3, **shape(5120, 40, 40, 10, 17920), "sliding_window": 2047}),
    row("phi-3.5-mini", "microsoft/Phi-3.5-mini-instruct", "2024-08", 3821079552,
        {**_MINI, "sliding_window": 262144}),
    row("phi-4", "microsoft/phi-4", "2024-12", 14659507200,
        {**_PHI3, **shape(5120, 40, 40, 10, 17920), "vocab_size": 100352, "sliding_window": None}),
    row("phi-4-mini", "microsoft/Phi-4-mini-instruct", "2025-02", 3836021760, {
        **_PHI3, **shape(3072, 32, 24, 8, 8192), "vocab_size": 200064, "tie_word_embeddings": True,
        "partial_rotary_factor": 0.75, "sliding_window": 262144,
    }),
)  # fmt: skip

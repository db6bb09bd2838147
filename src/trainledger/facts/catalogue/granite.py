"""IBM's Granite 3 dense models and PowerLM."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row, shape

_GRANITE: Keys = {
    "model_type": "granite", "vocab_size": 49155, "hidden_act": "silu", "tie_word_embeddings": True,
    "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.1,
}  # fmt: skip
_2B: Keys = {**_GRANITE, **shape(2048, 40, 32, 8, 8192)}
_8B: Keys = {**_GRANITE, **shape(4096, 40, 32, 8, 12800)}

ENTRIES: tuple[Entry, ...] = (
    row("granite-3.0-2b", "ibm-granite/granite-3.0-2b-base", "2024-10", 2533531648, _2B),
    row("granite-3.0-8b", "ibm-granite/granite-3.0-8b-base", "2024-10", 8170848256, _8B),
    row("granite-3.1-2b", "ibm-granite/granite-3.1-2b-base", "2024-12", 2533531648, _2B),
    row("granite-3.1-8b", "ibm-granite/granite-3.1-8b-base", "2024-12", 8170848256, _8B),
    row("granite-3.3-2b", "ibm-granite/granite-3.3-2b-base", "2025-04", 2533539840,
        {**_2B, "vocab_size": 49159, "attention_dropout": 0.0}),
    row("granite-3.3-8b", "ibm-granite/granite-3.3-8b-base", "2025-04", 8170864640,
        {**_8B, "vocab_size": 49159, "attention_dropout": 0.0}),
    row("powerlm-3b", "ibm-research/PowerLM-3b", "2024-08", None,
        {**_GRANITE, **shape(2304, 40, 36, 36, 9216), "vocab_size": 49152}),
)  # fmt: skip

"""Which model types are known: the family that builds each, and its config class's defaults."""

from __future__ import annotations

from trainledger.facts.model_type_row import ModelType, config_class
from trainledger.facts.model_types_layernorm import ROWS as LAYER_NORM_ROWS
from trainledger.facts.model_types_megatron import ROWS as MEGATRON_ROWS
from trainledger.facts.model_types_moe import ROWS as MOE_ROWS
from trainledger.facts.model_types_rmsnorm import ROWS as RMS_NORM_ROWS

__all__ = ["MODEL_TYPES", "ModelType"]

_LLAMA = ModelType(
    "llama",
    "llama",
    (
        ("vocab_size", 32000),
        ("hidden_size", 4096),
        ("intermediate_size", 11008),
        ("num_hidden_layers", 32),
        ("num_attention_heads", 32),
        ("hidden_act", "silu"),
        ("tie_word_embeddings", False),
        ("attention_bias", False),
        ("attention_dropout", 0.0),
        ("mlp_bias", False),
    ),
    config_class("llama"),
)

MODEL_TYPES: dict[str, ModelType] = {
    row.name: row for row in (_LLAMA, *MOE_ROWS, *LAYER_NORM_ROWS, *RMS_NORM_ROWS, *MEGATRON_ROWS)
}

"""Megatron-Core's GPT model, and the defaults of its arguments."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.megatron import FAMILY
from trainledger.facts.model_type_row import ModelType

ARGUMENTS = Source("Megatron-LM arguments", "megatron/training/arguments.py", "2026-08")

ROWS: tuple[ModelType, ...] = (
    ModelType(
        FAMILY,
        "megatron_gpt",
        (
            ("hidden_act", "gelu"),
            ("gated_linear_unit", False),
            ("add_bias_linear", True),
            ("normalization", "LayerNorm"),
            ("position_embedding_type", "learned_absolute"),
            ("hidden_dropout", 0.1),
            ("attention_dropout", 0.1),
            ("qk_layernorm", False),
            ("add_qkv_bias", False),
            ("tie_word_embeddings", True),
        ),
        ARGUMENTS,
    ),
)

"""One layer of each family with LayerNorm, storage by storage, against real code."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.witness.compare import mismatches

GPT: dict[str, Any] = {"vocab_size": 512, "n_positions": 64, "n_embd": 64, "n_layer": 3, "n_head": 4}
BASE: dict[str, Any] = {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
WIDE = {**BASE, "intermediate_size": 160}
OPT = {**BASE, "model_type": "opt", "ffn_dim": 160, "max_position_embeddings": 64}
BERT = {**WIDE, "max_position_embeddings": 64}
DROPPED = {"attention_dropout": 0.1, "residual_dropout": 0.1, "embedding_dropout": 0.1}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("transformer.h.", {"model_type": "gpt2", **GPT}),
    "gpt2 without dropout": (
        "transformer.h.", {"model_type": "gpt2", **GPT, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    ),
    "starcoder": ("transformer.h.", {"model_type": "gpt_bigcode", **GPT}),
    "starcoder, equal heads": ("transformer.h.", {"model_type": "gpt_bigcode", **GPT, "multi_query": False}),
    "pythia": ("gpt_neox.layers.", {"model_type": "gpt_neox", **WIDE}),
    "neox, sequential": (
        "gpt_neox.layers.",
        {"model_type": "gpt_neox", **WIDE, "use_parallel_residual": False, "hidden_dropout": 0.1,
         "hidden_act": "gelu_fast", "attention_bias": False},
    ),
    "opt": ("model.decoder.layers.", OPT),
    "opt, norm after": ("model.decoder.layers.", {**OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    "phi": ("model.layers.", {"model_type": "phi", **WIDE, "resid_pdrop": 0.1}),
    "phi, grouped and normed": (
        "model.layers.", {"model_type": "phi", **WIDE, "num_key_value_heads": 2, "qk_layernorm": True},
    ),
    "starcoder2": ("model.layers.", {"model_type": "starcoder2", **WIDE, "num_key_value_heads": 2, **DROPPED}),
    "starcoder2 without biases": ("model.layers.", {"model_type": "starcoder2", **WIDE, "use_bias": False}),
    "bert": ("bert.encoder.layer.", {**BERT, "model_type": "bert", "architectures": ["BertForMaskedLM"]}),
    "electra": (
        "electra.encoder.layer.",
        {**BERT, "model_type": "electra", "embedding_size": 32, "architectures": ["ElectraForMaskedLM"]},
    ),
    "distilbert": (
        "distilbert.transformer.layer.",
        {"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"], "vocab_size": 512, "dim": 64,
         "n_layers": 3, "n_heads": 4, "hidden_dim": 160},
    ),
    "roberta": (
        "roberta.encoder.layer.", {**BERT, "model_type": "roberta", "architectures": ["RobertaForMaskedLM"]},
    ),
    "xlm-roberta": (
        "roberta.encoder.layer.", {**BERT, "model_type": "xlm-roberta", "architectures": ["XLMRobertaForMaskedLM"]},
    ),
}  # fmt: skip
MIXED = {"weights": "fp32", "autocast": "bf16"}
SETTINGS: dict[str, dict[str, Any]] = {
    "fused": {"batch": 1},
    "fused, batch": {"batch": 2},
    "eager": {"kernel": "eager"},
    "eager, batch": {"kernel": "eager", "batch": 2},
    "autocast": MIXED,
    "autocast, eager, batch": {**MIXED, "kernel": "eager", "batch": 2},
    "fp32, eager, batch": {"weights": "fp32", "kernel": "eager", "batch": 2},
}


VARIANTS = ("fused, batch", "eager", "autocast, eager, batch")  # what a family's second configuration is run with
CASES = [
    (family, setting)
    for family in FAMILIES
    for setting in SETTINGS
    if setting in VARIANTS or not any(mark in family for mark in (",", "without"))
]


@pytest.mark.parametrize(("family", "setting"), CASES)
def test_layer(family: str, setting: str) -> None:
    prefix, config = FAMILIES[family]
    assert mismatches(config, prefix=prefix, **SETTINGS[setting]) == []

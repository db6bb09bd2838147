"""Rotary decoders with LayerNorms of their own: one layer storage by storage, and whole steps, against real code."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.plans import plan_of
from tests.witness.compare import mismatches
from tests.witness.steps import KINDS, SETTINGS, SHARDED, both_phases
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.model.build import build
from trainledger.model.counts import total

GPT: dict[str, Any] = {
    "vocab_size": 512, "n_embd": 64, "n_layer": 3, "n_head": 8, "rotary_dim": 4, "n_positions": 256,
}  # fmt: skip
BASE: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 160,
}  # fmt: skip
DROPPED = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
BLOCKS, LAYERS = "transformer.h.", "model.layers."
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gptj": (BLOCKS, {"model_type": "gptj", **GPT, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}),
    "codegen": (BLOCKS, {"model_type": "codegen", **GPT}),
    "codegen, four heads": (BLOCKS, {"model_type": "codegen", **GPT, "n_head": 4, "resid_pdrop": 0.1}),
    "stablelm": (LAYERS, {"model_type": "stablelm", **BASE, "num_key_value_heads": 2, "use_qkv_bias": True}),
    "stablelm, parallel": (
        LAYERS, {"model_type": "stablelm", **BASE, **DROPPED, "num_key_value_heads": 4, "use_parallel_residual": True},
    ),
    "persimmon": (LAYERS, {"model_type": "persimmon", **BASE}),
    "persimmon, no norms of heads": (LAYERS, {"model_type": "persimmon", **BASE, **DROPPED, "qk_layernorm": False}),
    "nemotron": (LAYERS, {"model_type": "nemotron", **BASE, "num_key_value_heads": 2}),
    "olmo": (LAYERS, {"model_type": "olmo", **BASE, "num_key_value_heads": 2, "attention_dropout": 0.1}),
}  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_layer(family: str, setting: str) -> None:
    prefix, config = FAMILIES[family]
    assert mismatches(config, prefix=prefix, **SETTINGS[setting]) == []


LORA = {"kind": "lora", "r": 8, "targets": "all-linear", "dropout": 0.1, "dtype": "bf16"}
ADAPTED = {"adapter": LORA, "precision": {**KINDS["pure"], "gradients": "bf16"}}
SPREAD = {"parallel": SHARDED, "precision": KINDS["sharded"]}
STEPS = [
    ("gptj", "eager", "none", {"precision": KINDS["autocast"]}),
    ("gptj", "sdpa", "full-reentrant", {"precision": KINDS["fp32"]}),
    ("codegen", "mem-efficient", "full", {"precision": KINDS["pure"]}),
    ("codegen", "sdpa", "none", SPREAD),
    ("stablelm", "eager", "full", {"precision": KINDS["autocast"]}),
    ("stablelm, parallel", "sdpa", "none", ADAPTED),
    ("persimmon", "sdpa", "full", {"precision": KINDS["pure"]}),
    ("persimmon", "eager", "none", SPREAD),
    ("nemotron", "mem-efficient", "full", {"precision": KINDS["autocast"]}),
    ("nemotron", "sdpa", "full-reentrant", ADAPTED),
    ("olmo", "eager", "none", {"precision": KINDS["fp32"]}),
    ("olmo", "sdpa", "full", ADAPTED),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "attention", "recompute", "more"), STEPS)
def test_steps_agree(family: str, attention: str, recompute: str, more: dict[str, Any]) -> None:
    """The largest instant of every phase, to the byte."""
    ours, real = both_phases(FAMILIES[family][1], recompute, attention, **more)
    assert ours == real


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({**FAMILIES["stablelm"][1], "qk_layernorm": True}, "each head has a LayerNorm of its own"),
        ({**FAMILIES["olmo"][1], "clip_qkv": 8.0}, "clamped in place"),
    ],
)
def test_what_has_no_rule_is_counted_alone(model: dict[str, Any], reason: str) -> None:
    """Its activations are refused; its weights are those of the class."""
    import torch
    import transformers

    with pytest.raises(InputError, match=reason):
        estimate(plan_of(model))
    keys = {key: value for key, value in model.items() if key != "model_type"}
    with torch.device("meta"):
        real = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(model["model_type"], **keys)
        )
    assert total(build(model)) == sum(one.numel() for one in real.parameters())

"""One layer of every decoder near Llama, storage by storage against the real code."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.witness.compare import labelled, matched, mismatches, section, written
from tests.witness.runs import Case, record_of
from trainledger.ledger.walk import run_forward
from trainledger.model.build import build

SMALL = {
    "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "pad_token_id": None,
}  # fmt: skip
WIDE = {**SMALL, "head_dim": 96}
MHA = {**SMALL, "num_key_value_heads": 4}

# Layer 1 of each is compared.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SMALL},
    "llama-bias": {"model_type": "llama", **MHA, "attention_bias": True, "mlp_bias": True},
    "mistral": {"model_type": "mistral", **WIDE},
    "mistral-window": {"model_type": "mistral", **WIDE, "sliding_window": 16},
    "qwen2": {"model_type": "qwen2", **SMALL},
    "qwen3": {"model_type": "qwen3", **WIDE},
    "gemma": {"model_type": "gemma", **WIDE},
    "gemma-mqa": {"model_type": "gemma", **WIDE, "num_key_value_heads": 1},
    "gemma2": {"model_type": "gemma2", **WIDE},
    "gemma2-sliding": {"model_type": "gemma2", **WIDE, "layer_types": ["sliding_attention"] * 3},
    "gemma3": {"model_type": "gemma3_text", **WIDE},
    "gemma3-full": {"model_type": "gemma3_text", **WIDE, "layer_types": ["full_attention"] * 3},
    "gemma3-mqa": {"model_type": "gemma3_text", **WIDE, "num_key_value_heads": 1},
    "phi3": {"model_type": "phi3", **SMALL, "resid_pdrop": 0.1},
    "phi3-mha": {"model_type": "phi3", **MHA},
    "phi3-window": {"model_type": "phi3", **MHA, "sliding_window": 16},
    "phi3-part": {"model_type": "phi3", **SMALL, "partial_rotary_factor": 0.75},
    "olmo2": {"model_type": "olmo2", **SMALL},
    "granite": {"model_type": "granite", **SMALL, "attention_dropout": 0.1, "residual_multiplier": 0.5},
    "cohere": {"model_type": "cohere", **SMALL},
    "cohere-norms": {"model_type": "cohere", **MHA, "use_qk_norm": True},
    "cohere2": {"model_type": "cohere2", **SMALL},
    "cohere2-full": {"model_type": "cohere2", **SMALL, "layer_types": ["full_attention"] * 3},
    "glm": {"model_type": "glm", **WIDE},
    "glm4": {"model_type": "glm4", **MHA, "head_dim": 64},
    "smollm3": {"model_type": "smollm3", **SMALL},
    "smollm3-bare": {"model_type": "smollm3", **SMALL, "no_rope_layers": [1, 0, 1]},
    "arcee": {"model_type": "arcee", **SMALL, "mlp_bias": True},
    "internlm3": {"model_type": "internlm3", **SMALL},
    "ministral": {"model_type": "ministral", **WIDE},
    "ministral-window": {"model_type": "ministral", **WIDE, "sliding_window": 16},
    "ministral3": {"model_type": "ministral3", **WIDE},
    "seed_oss": {"model_type": "seed_oss", **WIDE},
    "seed_oss-bare": {"model_type": "seed_oss", **WIDE, "residual_dropout": 0.0, "attention_dropout": 0.0},
    "hunyuan": {"model_type": "hunyuan_v1_dense", **WIDE, "attention_bias": True},
    "ernie": {"model_type": "ernie4_5", **WIDE, "use_bias": True},
    "olmo3": {"model_type": "olmo3", **SMALL, "sliding_window": 16},
    "exaone4": {"model_type": "exaone4", **WIDE},
    "apertus": {"model_type": "apertus", **WIDE, "attention_bias": True},
    "lfm2": {"model_type": "lfm2", **SMALL, "full_attn_idxs": [0]},
    "lfm2-full": {"model_type": "lfm2", **SMALL, "block_multiple_of": 32},
    "exaone4-full": {"model_type": "exaone4", **WIDE, "layer_types": ["full_attention"] * 3},
    "smollm3-bare-mha": {"model_type": "smollm3", **MHA, "no_rope_layers": [1, 0, 1]},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16-batch": {"batch": 2},
    "eager": {"kernel": "eager"},
    "eager-batch": {"kernel": "eager", "batch": 2},
    "autocast": {"weights": "fp32", "autocast": "bf16"},
    "autocast-eager-batch": {"weights": "fp32", "autocast": "bf16", "kernel": "eager", "batch": 2},
    "fp32-eager-batch": {"weights": "fp32", "kernel": "eager", "batch": 2},
}
EAGER_ONLY = ("gemma2", "gemma2-sliding")  # the class refuses scaled_dot_product_attention
ONCE = (
    "llama-bias", "gemma-mqa", "gemma2-sliding", "gemma3-full", "gemma3-mqa", "mistral-window", "phi3-window",
    "phi3-mha", "smollm3-bare-mha", "cohere2-full", "ministral", "ministral-window", "seed_oss-bare", "exaone4-full",
    "internlm3",
)  # fmt: skip
EVERY = ("bf16", "autocast-eager-batch")
ALSO = [
    ("llama", "bf16-batch"), ("llama", "eager"), ("llama", "eager-batch"), ("llama", "autocast"),
    ("llama", "fp32-eager-batch"), ("qwen3", "bf16-batch"), ("qwen3", "eager"), ("gemma2", "eager"),
    ("gemma-mqa", "eager"), ("gemma-mqa", "bf16-batch"),
    ("gemma3", "fp32-eager-batch"), ("phi3", "bf16-batch"), ("phi3-part", "autocast"), ("phi3-mha", "eager-batch"),
    ("olmo2", "autocast"), ("cohere-norms", "bf16-batch"), ("cohere", "autocast"), ("cohere", "fp32-eager-batch"),
    ("glm", "autocast"), ("glm4", "eager-batch"), ("smollm3-bare", "bf16-batch"), ("smollm3-bare", "eager"),
    ("smollm3-bare-mha", "eager"), ("mistral-window", "bf16-batch"), ("phi3-window", "bf16-batch"),
    ("llama-bias", "bf16"), ("gemma2-sliding", "eager-batch"), ("gemma3-full", "bf16"), ("gemma3-mqa", "autocast"),
    ("gemma-mqa", "autocast-eager-batch"), ("cohere2-full", "bf16"),
    ("internlm3", "bf16"), ("arcee", "autocast"),
    ("ministral", "eager"), ("ministral-window", "bf16-batch"), ("ministral3", "bf16-batch"),
    ("seed_oss", "eager-batch"), ("seed_oss-bare", "autocast"), ("hunyuan", "eager"), ("ernie", "bf16-batch"),
    ("ernie", "autocast"), ("olmo3", "eager-batch"), ("exaone4-full", "bf16"),
    ("apertus", "autocast"), ("apertus", "fp32-eager-batch"),
    ("lfm2", "bf16-batch"), ("lfm2", "autocast"), ("lfm2", "fp32-eager-batch"),
]  # fmt: skip
CASES = [(family, setting) for family in FAMILIES if family not in ONCE for setting in EVERY] + ALSO


def applies(family: str, setting: str) -> bool:
    return family not in EAGER_ONLY or SETTINGS[setting].get("kernel") == "eager"


@pytest.mark.parametrize(("family", "setting"), [case for case in CASES if applies(*case)])
def test_a_layer_agrees_with_the_real_code(family: str, setting: str) -> None:
    assert mismatches(FAMILIES[family], **SETTINGS[setting]) == []


NAMES = [
    ("llama", "bf16"), ("llama", "eager-batch"), ("qwen3", "bf16"), ("gemma", "autocast"), ("gemma2", "eager"),
    ("phi3-part", "bf16"), ("olmo2", "autocast"), ("granite", "autocast-eager-batch"), ("cohere", "bf16"),
    ("cohere-norms", "eager"), ("glm", "autocast"), ("glm4", "eager-batch"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "setting"), NAMES)
def test_names_of_the_code_end_where_they_do(family: str, setting: str) -> None:
    """A checkpointed layer's first forward: autograd holds nothing, so every death is a name's."""
    config, case = FAMILIES[family], Case(**SETTINGS[setting], recompute="full")
    model = build(case.plan(config).keys())
    block = next(block for block in model.blocks if case.layer in block.layers)
    tape, target = written(model, block.ops, config, case)
    walked = run_forward(tape, frozenset({target, *tape.cached.values()}), saving=False)
    # the last row, the layer's end, differs by its input, which the checkpoint keeps
    rows = matched(labelled(tape, walked.events), section(record_of(config, case), "forward", case))[:-1]
    assert [(ours, theirs) for ok, ours, theirs in rows if not ok] == []

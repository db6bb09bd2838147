"""Gemma 4: a layer of every form storage by storage, and whole steps, against Transformers' own code."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.witness.compare import mismatches
from tests.witness.steps import both_phases

SLIDING, FULL = "sliding_attention", "full_attention"
LOCAL: dict[str, Any] = {
    "model_type": "gemma4_text", "hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 4,
    "vocab_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 48, "global_head_dim": 64,
    "pad_token_id": None, "hidden_size_per_layer_input": 0, "layer_types": [SLIDING, SLIDING, SLIDING, FULL],
}  # fmt: skip
GLOBAL = {**LOCAL, "layer_types": [FULL, FULL, SLIDING, FULL]}
EQUAL = {**GLOBAL, "attention_k_eq_v": True}
MIXED = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 96}
# Layer 1 of each is compared.
LAYERS: dict[str, dict[str, Any]] = {
    "local": LOCAL,
    "window": {**LOCAL, "sliding_window": 16},
    "biases": {**LOCAL, "attention_bias": True, "attention_dropout": 0.1, "num_key_value_heads": 4},
    "global": GLOBAL,
    "one key head": {**EQUAL, "num_global_key_value_heads": 1},
    "two key heads": {**EQUAL, "num_global_key_value_heads": 2},
    "experts": {**LOCAL, **MIXED},
    "wide, experts": {**EQUAL, **MIXED, "num_global_key_value_heads": 2, "global_head_dim": 512},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16, two": {"batch": 2},
    "eager, two": {"kernel": "eager", "batch": 2},
    "efficient, two": {"kernel": "efficient", "batch": 2},
    "fp32": {"weights": "fp32", "kernel": "eager"},
    "autocast": {"weights": "fp32", "autocast": "bf16"},
    "autocast, eager, two": {"weights": "fp32", "autocast": "bf16", "kernel": "eager", "batch": 2},
}
ONCE = ("efficient, two", "autocast")  # settings in which the last form alone is run


@pytest.mark.parametrize(
    ("form", "setting"),
    [(form, one) for form in LAYERS for one in SETTINGS if one not in ONCE or form == list(LAYERS)[-1]],
)
def test_a_layer_agrees_with_the_real_code(form: str, setting: str) -> None:
    assert mismatches(LAYERS[form], **SETTINGS[setting]) == []


WHOLE = {**EQUAL, "num_hidden_layers": 5, "layer_types": [SLIDING, FULL, SLIDING, SLIDING, FULL], "sliding_window": 64}
RUNS: dict[str, dict[str, Any]] = {
    "full last": WHOLE,
    "one sliding": {**WHOLE, "layer_types": [FULL, SLIDING, *[FULL] * 3]},
    "experts": {**WHOLE, **MIXED, "final_logit_softcapping": 30.0},
}
PURE = {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16"}
FP32 = {"weights": "fp32", "compute": "fp32", "autocast": False, "gradients": "fp32"}
AUTOCAST = {"weights": "fp32", "compute": "bf16", "autocast": True, "gradients": "fp32"}
# attention, recompute, precision, whether an adapter is trained
STACKS = [
    ("sdpa", "full", PURE, False), ("eager", "full", AUTOCAST, False), ("mem-efficient", "full", FP32, False),
    ("sdpa", "full-reentrant", PURE, False), ("eager", "full-reentrant", AUTOCAST, True), ("sdpa", "none", FP32, True),
    ("sdpa", "full", PURE, True), ("mem-efficient", "none", PURE, True),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stack", range(len(STACKS)))
@pytest.mark.parametrize("run", RUNS)
def test_phases_agree(run: str, stack: int) -> None:
    """To the byte: what the last layers of each kind leave in the forward's dictionary stays with their graph."""
    attention, recompute, precision, adapted = STACKS[stack]
    ours, real = both_phases(
        RUNS[run],
        recompute,
        attention,
        sequence=256,
        precision={**precision, "gradients": "fp32"} if adapted else precision,
        **({"adapter": {"kind": "lora", "r": 16, "dtype": "fp32", "targets": "all-linear"}} if adapted else {}),
    )
    assert ours == real

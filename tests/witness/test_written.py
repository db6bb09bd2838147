"""Classes that write attention out themselves: one layer storage by storage, and whole steps, against real code."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.witness.compare import mismatches
from tests.witness.steps import KINDS, SETTINGS, SHARDED, both_phases

FALCON: dict[str, Any] = {
    "model_type": "falcon", "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "pad_token_id": 0,
}  # fmt: skip
GROUPED = {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}
DROPPED = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
BLOOM: dict[str, Any] = {"model_type": "bloom", "vocab_size": 512, "hidden_size": 64, "n_layer": 3, "n_head": 4}
MPT: dict[str, Any] = {
    "model_type": "mpt", "vocab_size": 512, "d_model": 64, "n_layers": 3, "n_heads": 4, "max_seq_len": 256,
}  # fmt: skip
LAYERS = "transformer.h."
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "one key head": (LAYERS, {**FALCON, "ffn_hidden_size": 160}),
    "grouped, two norms": (LAYERS, GROUPED),
    "grouped, one norm": (LAYERS, {**GROUPED, "num_ln_in_parallel_attn": 1, "hidden_dropout": 0.1}),
    "key heads, biases": (LAYERS, {**FALCON, **DROPPED, "bias": True, "multi_query": False}),
    "sequential, alibi": (
        LAYERS, {**FALCON, **DROPPED, "parallel_attn": False, "alibi": True, "bias": True, "multi_query": False},
    ),
    "bloom": (LAYERS, BLOOM),
    "bloom, norm before": (LAYERS, {**BLOOM, **DROPPED, "apply_residual_connection_post_layernorm": True}),
    "mpt": ("transformer.blocks.", MPT),
}  # fmt: skip


def calls(family: str) -> bool:
    """Whether the class calls PyTorch's own function, too."""
    return FAMILIES[family][1]["model_type"] == "falcon"


@pytest.mark.parametrize(
    ("family", "setting"),
    [(family, setting) for family in FAMILIES for setting in SETTINGS if "eager" in setting or calls(family)],
)
def test_layer(family: str, setting: str) -> None:
    prefix, config = FAMILIES[family]
    assert mismatches(config, prefix=prefix, **SETTINGS[setting]) == []


LORA = {"kind": "lora", "r": 8, "targets": "all-linear", "dropout": 0.1, "dtype": "fp32"}
STEPS = [
    ("one key head", "sdpa", "none", "pure", {}),
    ("one key head", "eager", "full", "autocast", {}),
    ("grouped, two norms", "mem-efficient", "full", "fp32", {}),
    ("grouped, two norms", "sdpa", "none", "adapted", {"adapter": LORA}),
    ("grouped, two norms", "sdpa", "full", "sharded", {"parallel": SHARDED}),
    ("sequential, alibi", "sdpa", "full-reentrant", "autocast", {}),
    ("sequential, alibi", "eager", "full-reentrant", "pure", {}),
    ("bloom", "eager", "none", "autocast", {}),
    ("bloom", "eager", "full", "adapted", {"adapter": LORA}),
    ("bloom", "eager", "full-reentrant", "fp32", {}),
    ("bloom", "eager", "full", "sharded", {"parallel": SHARDED}),
    ("mpt", "eager", "none", "fp32", {}),
    ("mpt", "eager", "full", "pure", {}),
    ("mpt", "eager", "full-reentrant", "adapted", {"adapter": LORA}),
    ("mpt", "eager", "full", "sharded", {"parallel": SHARDED}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "attention", "recompute", "precision", "more"), STEPS)
def test_steps_agree(family: str, attention: str, recompute: str, precision: str, more: dict[str, Any]) -> None:
    """The largest instant of every phase, to the byte. A layer's weights live until the next one has returned, and a
    reentrant checkpoint is handed zeros for their gradient."""
    ours, real = both_phases(FAMILIES[family][1], recompute, attention, precision=KINDS[precision], **more)
    assert ours == real

"""ModernBERT: a layer with and without a window storage by storage, and whole steps, against real code."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.witness.compare import mismatches
from tests.witness.steps import KINDS, SETTINGS, SHARDED, both_phases

MODERN: dict[str, Any] = {
    "model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"], "vocab_size": 512, "hidden_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 96, "local_attention": 32,
    "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2, "cls_token_id": 2, "sep_token_id": 1,
}  # fmt: skip
DROPPED = {"attention_dropout": 0.1, "mlp_dropout": 0.1, "embedding_dropout": 0.1, "norm_bias": True}
FORMS = {"window": MODERN, "full": {**MODERN, **DROPPED, "global_attn_every_n_layers": 2}}
LAYER = 2  # the tables of its kind are another layer's, too


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("form", FORMS)
def test_layer(form: str, setting: str) -> None:
    assert mismatches(FORMS[form], layer=LAYER, **SETTINGS[setting]) == []


LORA = {"kind": "lora", "r": 8, "targets": ["Wqkv", "Wo"], "dropout": 0.1, "dtype": "bf16"}
STEPS = [
    ("sdpa", "none", {"precision": KINDS["pure"]}),
    ("eager", "full", {"precision": KINDS["autocast"]}),
    ("mem-efficient", "full-reentrant", {"precision": KINDS["fp32"]}),
    ("sdpa", "full", {"adapter": LORA, "precision": {**KINDS["pure"], "gradients": "bf16"}}),
    ("sdpa", "full", {"parallel": SHARDED, "precision": KINDS["sharded"]}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("attention", "recompute", "more"), STEPS)
def test_steps_agree(attention: str, recompute: str, more: dict[str, Any]) -> None:
    """The largest instant of every phase, to the byte: the window's mask is made of numbers of 64 bits."""
    ours, real = both_phases(MODERN, recompute, attention, **more)
    assert ours == real

"""Shapes of weights against those of Transformers' own classes on the meta device."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from trainledger.ledger.step import weights_of
from trainledger.model.build import build

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "vocab_size": 160,
}
MODELS: tuple[dict[str, Any], ...] = (
    {"model_type": "llama", "num_key_value_heads": 2, **SMALL},
    {"model_type": "qwen2", "num_key_value_heads": 2, **SMALL},
    {"model_type": "gpt_neox", **SMALL},
    {"model_type": "bert", **SMALL},
    {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 160},
    {"model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 2, **SMALL},
)


@pytest.mark.parametrize("keys", MODELS, ids=lambda keys: str(keys["model_type"]))
def test_shapes_are_those_of_the_real_class(keys: dict[str, Any]) -> None:
    config = transformers.AutoConfig.for_model(
        keys["model_type"], **{k: v for k, v in keys.items() if k != "model_type"}
    )
    kind = transformers.AutoModelForMaskedLM if keys["model_type"] == "bert" else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        real = kind.from_config(config)
    ours = Counter[tuple[int, ...]]()
    for _, weight, count in weights_of(build(config.to_dict())):
        ours[weight.shape] += count
    assert ours == Counter(tuple(one.shape) for one in real.parameters())

"""Parameters of Megatron-Core's models with experts, and their names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_megatron import LLAMA, plan_of
from trainledger.base.problems import InputError
from trainledger.model import counts
from trainledger.model.build import model_of
from trainledger.model.operations_megatron_moe import taken_apart
from trainledger.model.program import Block, Model

MIXTRAL = {  # 46.7e9 parameters, 12.9e9 active: Mixtral of Experts, arXiv:2401.04088
    **LLAMA,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "num_experts": 8,
    "num_experts_per_tok": 2,
}
DEEPSEEK = {  # 236e9 parameters, 21e9 active: DeepSeek-V2, arXiv:2405.04434
    **LLAMA,
    "hidden_size": 5120,
    "num_hidden_layers": 60,
    "num_attention_heads": 128,
    "num_key_value_heads": None,
    "intermediate_size": 12288,
    "vocab_size": 102400,
    "num_experts": 160,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1536,
    "shared_expert_intermediate_size": 3072,
    "first_k_dense_replace": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_layernorm": True,
}


def model(keys: dict[str, Any], **more: Any) -> Model:
    return model_of(plan_of({**keys, **more}))


@pytest.mark.parametrize(("keys", "total", "active"), [(MIXTRAL, 46.7e9, 12.9e9), (DEEPSEEK, 235.7e9, 21.4e9)])
def test_published_counts(keys: dict[str, Any], total: float, active: float) -> None:
    made = model(keys)
    assert counts.total(made) == pytest.approx(total, rel=2e-3)
    assert counts.active(made) == pytest.approx(active, rel=0.01)


def routed(made: Model) -> Block:
    return next(block for block in made.blocks if block.top_k)


@pytest.mark.parametrize(
    ("given", "layers"),
    [
        ({}, (0, 1, 2, 3)),
        ({"first_k_dense_replace": 3}, (3,)),
        ({"moe_layer_freq": 2}, (0, 2)),
        ({"moe_layer_freq": [0, 1, 1, 0]}, (1, 2)),
    ],
)
def test_which_layers_have_experts(given: dict[str, Any], layers: tuple[int, ...]) -> None:
    made = model(MIXTRAL, num_hidden_layers=4, **given)
    assert routed(made).layers == layers
    assert sorted(layer for block in made.blocks for layer in block.layers) == [0, 1, 2, 3]


def test_experts_have_weights_of_their_own_in_the_order_of_their_modules() -> None:
    weights = routed(model(MIXTRAL, num_experts=2)).weights
    single = [one.name for one in taken_apart(weights, False) if "experts" in one.name]
    assert single == [f"mlp.experts.local_experts.{at}.linear_fc{layer}.weight" for at in (0, 1) for layer in (1, 2)]
    grouped = [one.name for one in taken_apart(weights, True) if "experts" in one.name]
    assert grouped == [f"mlp.experts.linear_fc{layer}.weight{at}" for layer in (1, 2) for at in (0, 1)]
    for apart in (taken_apart(weights, False), taken_apart(weights, True)):
        assert sum(one.elements for one in apart) == sum(one.elements for one in weights)


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("model.num_experts_per_tok", {"num_experts_per_tok": 9}),
        ("model.moe_layer_freq", {"moe_layer_freq": [1, 0]}),
    ],
)
def test_refused_by_name(path: str, given: dict[str, Any]) -> None:
    with pytest.raises(InputError) as found:
        model(MIXTRAL, **given)
    assert path in [one.path for one in found.value.problems]

"""Gemma 4: what its keys say of each layer, and what is refused or counted alone."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.base.problems import InputError
from trainledger.model.build import build
from trainledger.model.program import Attention, Model, Rope, Stored

KEYS: dict[str, Any] = {
    "model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 7, "vocab_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 24, "sliding_window": 8,
    "hidden_size_per_layer_input": 0,
}  # fmt: skip
Shape = tuple[int, int, int]


def attentions(model: Model) -> list[Shape]:
    """Each layer's window, key heads and head dim."""
    found: dict[int, Shape] = {}
    for block in model.blocks:
        spec = next(op.spec for op in block.ops if isinstance(op.spec, Attention))
        assert {op.spec.head for op in block.ops if isinstance(op.spec, Rope)} == {spec.head}
        found |= dict.fromkeys(block.layers, (spec.window, spec.kv_heads, spec.head))
    return [found[at] for at in sorted(found)]


def storing(model: Model) -> list[int]:
    """The layers that leave keys and values in the forward's dictionary."""
    return sorted(
        layer
        for block in model.blocks
        for layer in block.layers
        if any(isinstance(op.spec, Stored) for op in block.ops)
    )


def test_every_sixth_layer_and_the_last_are_full() -> None:
    local, full = (8, 2, 16), (0, 2, 24)
    assert attentions(build(KEYS)) == [*[local] * 5, full, full]
    assert storing(build(KEYS)) == [4, 6]
    listed = {**KEYS, "layer_types": ["full_attention", *["sliding_attention"] * 6]}
    assert attentions(build(listed)) == [full, *[local] * 5, full]


def test_heads_of_full_layers_are_apart_where_keys_are_values() -> None:
    keys = {**KEYS, "num_global_key_value_heads": 1}
    assert attentions(build(keys))[-1] == (0, 2, 24)
    assert attentions(build({**keys, "attention_k_eq_v": True}))[-1] == (0, 1, 24)
    rotary = build(KEYS).rotary
    assert rotary is not None
    assert {name: rotary.width(name) for name in rotary.sets} == {"local": 16, "": 24}


@pytest.mark.parametrize("name", ["{}", "{:02}"])  # as in a plan; as Transformers 5.24.0 saves them
def test_a_saved_config_says_heads_layer_by_layer(name: str) -> None:
    own = {name.format(at): {"head_dim": 32, "num_key_value_heads": 4} for at in (5, 6)}
    assert attentions(build({**KEYS, "per_layer_config": own}))[4:] == [(8, 2, 16), (0, 4, 32), (0, 4, 32)]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"num_kv_shared_layers": 5}, "num_kv_shared_layers"),
        ({"num_global_key_value_heads": 3, "attention_k_eq_v": True}, "num_global_key_value_heads"),
        ({"enable_moe_block": True, "num_experts": 2, "top_k_experts": 3, "moe_intermediate_size": 8}, "top_k_experts"),
        ({"per_layer_config": {"5": {"head_dim": 32}}}, "per_layer_config"),
        ({"per_layer_config": {"5": {"num_attention_heads": 2}}}, "per_layer_config"),
        ({"per_layer_config": [1]}, "per_layer_config"),
    ],
)
def test_an_impossible_key_is_a_named_problem(change: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError) as raised:
        build({**KEYS, **change})
    assert f"model.{key}" in {problem.path for problem in raised.value.problems}


@pytest.mark.parametrize("change", [{"hidden_size_per_layer_input": 8}, {"num_kv_shared_layers": 1}])
def test_the_small_models_are_counted_alone(change: dict[str, Any]) -> None:
    model = build({**KEYS, "layer_types": ["sliding_attention", "full_attention"] * 3 + ["full_attention"], **change})
    assert all(not block.ops and "not covered" in block.unknown for block in model.blocks)

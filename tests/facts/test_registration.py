"""The order of parameters: names as models that were built list them."""

from __future__ import annotations

import pytest

from trainledger.facts.registration import rank_in

# named_parameters() of GPTModel of megatron-core 0.15.0 and 0.19.2, one layer
MEGATRON = {
    "dense": (
        "input_layernorm.weight", "input_layernorm.bias", "self_attention.linear_proj.weight",
        "self_attention.linear_proj.bias", "self_attention.linear_qkv.weight", "self_attention.linear_qkv.bias",
        "self_attention.q_layernorm.weight", "self_attention.k_layernorm.weight", "pre_mlp_layernorm.weight",
        "mlp.linear_fc1.weight", "mlp.linear_fc1.bias", "mlp.linear_fc2.weight", "mlp.linear_fc2.bias",
    ),
    "experts": (
        "input_layernorm.weight", "self_attention.linear_proj.weight", "self_attention.linear_qkv.weight",
        "pre_mlp_layernorm.weight", "mlp.router.weight", "mlp.experts.local_experts.0.linear_fc1.weight",
        "mlp.experts.local_experts.0.linear_fc2.weight", "mlp.experts.local_experts.1.linear_fc1.weight",
    ),
}  # fmt: skip
USED = ("input_layernorm", "self_attention.linear_qkv", "self_attention.q_", "self_attention.k_", "self_attention")


@pytest.mark.parametrize("kind", MEGATRON)
def test_megatrons_output_projection_is_registered_before_what_it_projects(kind: str) -> None:
    names = MEGATRON[kind]
    first = {name: next((at for at, start in enumerate(USED) if name.startswith(start)), len(USED)) for name in names}
    used = sorted(names, key=first.__getitem__)
    assert used != list(names)
    assert sorted(used, key=lambda name: rank_in("megatron-gpt", name)) == list(names)


# As PersimmonAttention.__init__ of Transformers 5.24.0 assigns them; its forward uses `dense` last
PERSIMMON = [f"self_attn.{name}.weight" for name in ("query_key_value", "dense", "q_layernorm", "k_layernorm")]


def test_persimmons_output_projection_is_registered_before_its_heads_norms() -> None:
    used = [PERSIMMON[at] for at in (0, 2, 3, 1)]
    assert sorted(used, key=lambda name: rank_in("persimmon", name)) == PERSIMMON

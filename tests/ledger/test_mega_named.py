"""Names and order of a layer's parameters, against named_parameters() of Megatron-Core's GPTModel."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.answer.layout import layout
from trainledger.plan.read import read_plan
from trainledger.plan.resolve import resolve

# GPTModel of megatron-core 0.14.0 and of the main branch of 2026-08, with Transformer Engine's layer specification;
# its LayerNormLinear registers the norm's weights before the matrix
ATTENTION = ("self_attention.linear_proj", "self_attention.linear_qkv.layer_norm", "self_attention.linear_qkv")
DENSE = (*ATTENTION, "mlp.linear_fc1.layer_norm", "mlp.linear_fc1", "mlp.linear_fc2")
LATENT = (
    "input_layernorm", "self_attention.linear_proj", "self_attention.linear_q_down_proj",
    "self_attention.linear_q_up_proj.layer_norm", "self_attention.linear_q_up_proj",
    "self_attention.linear_kv_down_proj", "self_attention.linear_kv_up_proj.layer_norm",
    "self_attention.linear_kv_up_proj", "mlp.linear_fc1.layer_norm", "mlp.linear_fc1", "mlp.linear_fc2",
)  # fmt: skip
APART = ("input_layernorm", *ATTENTION[::2], "pre_mlp_layernorm", "mlp.linear_fc1", "mlp.linear_fc2")
GIVEN: dict[str, Any] = {
    "model_type": "megatron-gpt", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 136, "vocab_size": 256, "normalization": "RMSNorm",
    "tie_word_embeddings": False, "max_position_embeddings": 64, "position_embedding_type": "rope",
    "hidden_act": "silu", "gated_linear_unit": True, "add_bias_linear": False, "qk_layernorm": False,
    "hidden_dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
RANKS = {"q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}


def names_of(release: str = "0.19.2", local: bool = False, world: int = 4, pp: int = 1, **model: Any) -> list[str]:
    keys = {name: value for name, value in {**GIVEN, **model}.items() if value is not None}
    data = {
        "model": keys,
        "task": "pretrain",
        "precision": {"weights": "bf16", "compute": "bf16", "gradients": "fp32", "master": "fp32"},
        "batch": {"micro_batch": 1, "sequence": 32, "accumulation": 2 * pp},
        "parallel": {"strategy": "megatron-distopt", "world": world, "pp": pp},
        "stack": {"framework": "megatron", "versions": {"megatron-core": release},
                  "options": {"transformer_impl": "local"} if local else {}},
    }  # fmt: skip
    found = layout(resolve(read_plan(data))[0], world - 1)
    return [one.name for one in reversed(found.entries)]


def within(names: list[str], prefix: str) -> tuple[str, ...]:
    return tuple(
        name.removeprefix(prefix).removesuffix("_weight").removesuffix(".weight")
        for name in names
        if name.startswith(prefix)
    )


def test_a_norm_that_one_layer_reads_is_part_of_it() -> None:
    assert within(names_of(), "decoder.layers.1.") == DENSE
    latent = names_of(**{**RANKS, "qk_layernorm": True, "head_dim": None, "num_key_value_heads": None})
    assert within(latent, "decoder.layers.1.") == LATENT


def test_megatrons_own_layers_have_norms_of_their_own() -> None:
    assert within(names_of(local=True), "decoder.layers.1.") == APART


def test_biases_follow_their_weights() -> None:
    names = names_of(normalization="LayerNorm", add_bias_linear=True)
    assert [name.removeprefix("decoder.layers.0.") for name in names if name.startswith("decoder.layers.0.")] == [
        "self_attention.linear_proj.weight", "self_attention.linear_proj.bias",
        "self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.layer_norm_bias",
        "self_attention.linear_qkv.weight", "self_attention.linear_qkv.bias",
        "mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.layer_norm_bias",
        "mlp.linear_fc1.weight", "mlp.linear_fc1.bias", "mlp.linear_fc2.weight", "mlp.linear_fc2.bias",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("release", "inner"), [("0.16.1", "transformer_layer."), ("0.19.2", "mtp_model_layer."), ("", "mtp_model_layer.")]
)
@pytest.mark.parametrize("pp", [1, 2])
def test_a_layer_for_a_further_token_has_a_layer_inside(release: str, inner: str, pp: int) -> None:
    names = names_of(release or "main@2026-08-22", num_nextn_predict_layers=1, pp=pp)
    expected = ("enorm", "hnorm", "eh_proj", *(inner + name for name in DENSE), "final_layernorm")
    assert within(names, "mtp.layers.0.") == expected
    assert names[-1] == "output_layer.weight"

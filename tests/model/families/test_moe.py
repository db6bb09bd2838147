"""Mixture-of-experts families: weights against Transformers' own classes on the meta device, and bad keys."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.base.problems import InputError
from trainledger.model import counts
from trainledger.model.build import build

BASE = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64}
MLA = {
    **BASE, "num_key_value_heads": 4, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "intermediate_size": 40,
}  # fmt: skip
V3 = {**MLA, "n_group": 2, "topk_group": 1}
QWEN = {**BASE, "intermediate_size": 40, "moe_intermediate_size": 12, "num_experts": 6, "num_experts_per_tok": 2}
GLM = {
    "head_dim": 8, "intermediate_size": 40, "moe_intermediate_size": 12, "n_routed_experts": 8, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
DELTA = {
    **BASE, "head_dim": 12, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
}  # fmt: skip
SHARED = {
    **DELTA, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
    "shared_expert_intermediate_size": 20,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "qwen3-next": {"model_type": "qwen3_next", **SHARED, "intermediate_size": 40},
    "qwen3-next steps": {"model_type": "qwen3_next", **SHARED, "intermediate_size": 40, "decoder_sparse_step": 2,
                         "mlp_only_layers": [1], "attention_bias": True, "tie_word_embeddings": True},
    "qwen3.5": {"model_type": "qwen3_5_text", **DELTA, "intermediate_size": 40},
    "qwen3.5 listed": {"model_type": "qwen3_5_text", **DELTA, "intermediate_size": 40,
                       "layer_types": ["full_attention", "linear_attention"] * 2},
    "qwen3.5 experts": {"model_type": "qwen3_5_moe_text", **SHARED},
    "mixtral": {"model_type": "mixtral", **BASE, "intermediate_size": 48, "num_local_experts": 4},
    "mixtral tied": {"model_type": "mixtral", **BASE, "intermediate_size": 48, "head_dim": 12,
                     "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2_moe", **QWEN, "shared_expert_intermediate_size": 20},
    "qwen2 no bias": {"model_type": "qwen2_moe", **QWEN, "qkv_bias": False, "mlp_only_layers": [1]},
    "qwen3": {"model_type": "qwen3_moe", **QWEN, "head_dim": 8},
    "qwen3 steps": {
        "model_type": "qwen3_moe", **QWEN, "decoder_sparse_step": 2, "attention_bias": True,
        "tie_word_embeddings": True,
    },
    "glm flash": {"model_type": "glm4_moe_lite", **V3, "q_lora_rank": 16},
    "glm flash kinds": {"model_type": "glm4_moe_lite", **V3, "q_lora_rank": None, "attention_bias": True,
                        "mlp_layer_types": ["sparse", "dense", "dense", "sparse"], "tie_word_embeddings": True},
    "lfm2": {"model_type": "lfm2_moe", **QWEN, "num_dense_layers": 1,
             "layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "granite": {"model_type": "granitemoe", **BASE, "intermediate_size": 24, "num_local_experts": 4},
    "granite shared": {"model_type": "granitemoeshared", **BASE, "intermediate_size": 24, "num_local_experts": 4,
                       "shared_intermediate_size": 20, "attention_bias": True, "tie_word_embeddings": True},
    "olmoe": {"model_type": "olmoe", **BASE, "intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 3},
    "olmoe bias": {"model_type": "olmoe", **BASE, "intermediate_size": 24, "num_experts": 6, "attention_bias": True,
                   "num_experts_per_tok": 3},
    "v2": {"model_type": "deepseek_v2", **MLA, "q_lora_rank": 16, "first_k_dense_replace": 1, "n_shared_experts": 2},
    "v2 straight": {"model_type": "deepseek_v2", **MLA, "q_lora_rank": None, "attention_bias": True, "mlp_bias": True},
    "v3": {"model_type": "deepseek_v3", **V3, "q_lora_rank": 16, "first_k_dense_replace": 2},
    "v3 bias": {"model_type": "deepseek_v3", **V3, "attention_bias": True, "tie_word_embeddings": True,
                "num_nextn_predict_layers": 1},
    "gpt-oss": {"model_type": "gpt_oss", **BASE, "head_dim": 8, "intermediate_size": 24, "num_local_experts": 4,
                "num_experts_per_tok": 2},
    "gpt-oss no bias": {"model_type": "gpt_oss", **BASE, "head_dim": 8, "intermediate_size": 24, "num_local_experts": 4,
                        "attention_bias": False, "tie_word_embeddings": True},
    "glm": {"model_type": "glm4_moe", **BASE, **GLM, "use_qk_norm": True, "attention_bias": True},
    "dots": {"model_type": "dots1", **BASE, **GLM},
    "solar": {"model_type": "solar_open", **BASE, **GLM},
    "minimax": {"model_type": "minimax_m2", **BASE, "head_dim": 8, "intermediate_size": 24, "num_local_experts": 4,
                "num_experts_per_tok": 2},
    "llama4": {"model_type": "llama4_text", **BASE, "head_dim": 8, "intermediate_size": 24, "intermediate_size_mlp": 40,
               "num_local_experts": 4, "interleave_moe_layer_step": 2},
    "llama4 listed": {"model_type": "llama4_text", **BASE, "head_dim": 8, "intermediate_size": 24, "moe_layers": [0, 3],
                      "attention_bias": True, "num_local_experts": 4},
    "gemma4": {"model_type": "gemma4_text", **BASE, "head_dim": 8, "global_head_dim": 12, "intermediate_size": 24,
               "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 12,
               "hidden_size_per_layer_input": 0, "pad_token_id": None},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_weights_are_those_of_the_real_class(name: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    body = dict(CASES[name])
    config = transformers.AutoConfig.for_model(body.pop("model_type"), **body)
    with torch.device("meta"):
        real = transformers.AutoModelForCausalLM.from_config(config)
    expected = {key: weight.numel() for key, weight in real.named_parameters()}
    expected = {key: (size, tuple(real.get_parameter(key).shape)) for key, size in expected.items()}
    model = build(CASES[name])
    found = dict(counts.storages(model))
    assert {key: weight.elements for key, weight in found.items()} == {key: size for key, (size, _) in expected.items()}
    stacked = {key: shape for key, (_, shape) in expected.items() if len(shape) == 3}
    assert stacked == {key: tuple(axis.size for axis in found[key].dims) for key in stacked}


def test_kimi_is_v3() -> None:
    one, other = (build({**CASES["v3"], "model_type": kind}) for kind in ("deepseek_v3", "kimi_k2"))
    assert one == other


@pytest.mark.parametrize(
    ("keys", "dense"),
    [
        ({"first_k_dense_replace": 2}, (0, 1)),
        ({"moe_layer_freq": 2}, (1, 3)),
        ({"moe_layer_freq": [0, 1, 1, 0]}, (0, 3)),
        ({"mlp_only_layers": [3]}, (3,)),
        ({"decoder_sparse_step": 4}, (0, 1, 2)),
    ],
)
def test_layers_without_experts(keys: dict[str, Any], dense: tuple[int, ...]) -> None:
    blocks = build({"model_type": "qwen3_moe", **QWEN, **keys}).blocks
    assert next(block.layers for block in blocks if not block.top_k) == dense


def test_shared_width_in_either_key() -> None:
    given = build({**CASES["qwen2"], "shared_expert_intermediate_size": 24})
    assert counts.total(given) == counts.total(build({"model_type": "qwen2_moe", **QWEN, "n_shared_experts": 2}))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"model_type": "mixtral", "router_jitter_noise": 0.1}, "router_jitter_noise"),
        ({"model_type": "mixtral", "output_router_logits": True}, "output_router_logits"),
        ({"model_type": "granitemoe", "output_router_logits": True}, "output_router_logits"),
        ({**CASES["lfm2"], "num_dense_layers": 0, "output_router_logits": True}, "output_router_logits"),
        ({"model_type": "olmoe", "clip_qkv": 8.0}, "clip_qkv"),
        ({"model_type": "deepseek_v3", "num_key_value_heads": 8}, "num_key_value_heads"),
        ({**CASES["v2"], "n_shared_experts": 0}, "n_shared_experts"),
        ({**CASES["v3"], "output_router_logits": True}, "output_router_logits"),
        ({"model_type": "gpt_oss", "output_router_logits": True}, "output_router_logits"),
        ({"model_type": "llama4_text", "output_router_logits": True}, "output_router_logits"),
        ({"model_type": "minimax_m2", "router_jitter_noise": 0.1}, "router_jitter_noise"),
    ],
)
def test_what_is_not_covered_says_so(keys: dict[str, Any], why: str) -> None:
    for block in build(keys).blocks:
        assert why in block.unknown
        assert not block.ops
        assert block.weights


@pytest.mark.parametrize(
    ("keys", "paths"),
    [
        ({"num_experts": 4, "num_experts_per_tok": 5}, ["model.num_experts_per_tok"]),
        ({"num_experts": 0, "moe_intermediate_size": -1}, ["model.num_experts", "model.moe_intermediate_size"]),
        ({"mlp_only_layers": "all"}, ["model.mlp_only_layers"]),
        ({"moe_layer_freq": [1]}, ["model.moe_layer_freq"]),
        ({"decoder_sparse_step": "x"}, ["model.decoder_sparse_step"]),
        ({"num_attention_heads": 5, "hidden_act": "blue"}, ["model.hidden_act", "model.num_key_value_heads"]),
    ],
)
def test_bad_keys_are_listed(keys: dict[str, Any], paths: list[str]) -> None:
    with pytest.raises(InputError) as failure:
        build({"model_type": "qwen3_moe", **QWEN, "head_dim": 8, **keys})
    assert set(paths) <= {problem.path for problem in failure.value.problems}


def test_groups_must_divide_the_experts() -> None:
    with pytest.raises(InputError, match="n_group"):
        build({**CASES["v3"], "n_group": 3})


def test_a_kind_for_each_layer_is_needed() -> None:
    with pytest.raises(InputError, match="mlp_layer_types"):
        build({**CASES["glm flash"], "mlp_layer_types": ["dense", "sparse"]})


def test_layers_of_lfm2_with_experts_have_their_kinds_given() -> None:
    with pytest.raises(InputError, match="layer_types"):
        build({key: size for key, size in CASES["lfm2"].items() if key != "layer_types"})


@pytest.mark.parametrize(("biased", "count"), [(True, 3), (False, 0)])
def test_corrections_of_lfm2_lie_in_its_layers_with_experts(biased: bool, count: int) -> None:
    model = build({**CASES["lfm2"], "use_expert_bias": biased})
    assert [buffer.elements for buffer in model.buffers] == [6] * count

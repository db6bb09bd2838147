"""Parameters of the decoders near Llama: name by name against the real classes."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.base.problems import InputError
from trainledger.model.build import build
from trainledger.model.counts import storages, total
from trainledger.model.program import Attention, Model

TYPES = {
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2", "granite", "cohere",
    "cohere2", "glm", "glm4", "smollm3", "ministral3", "seed_oss", "ernie4_5", "olmo3", "exaone4", "arcee", "internlm3",
    "gemma4_text", "exaone", "lfm2", "apertus",
}  # fmt: skip

TINY = {
    "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 5, "num_attention_heads": 4, "vocab_size": 320,
    "num_key_value_heads": 2, "pad_token_id": None,
}  # fmt: skip
HEAD = {"head_dim": 32}
SMALL4 = {**HEAD, "global_head_dim": 48, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 320}
FOURTH = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
VARIANTS: list[dict[str, Any]] = [
    {"model_type": "llama"},
    {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, **HEAD},
    {"model_type": "llama", "num_key_value_heads": None},
    {"model_type": "mistral", **HEAD},
    {"model_type": "mistral", "sliding_window": None, "tie_word_embeddings": True},
    {"model_type": "qwen2", "tie_word_embeddings": True},
    {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 2},
    {"model_type": "qwen3", **HEAD},
    {"model_type": "qwen3", "attention_bias": True, "tie_word_embeddings": True},
    {"model_type": "gemma", **HEAD},
    {"model_type": "gemma", "attention_bias": True, "tie_word_embeddings": False},
    {"model_type": "gemma2", **HEAD},
    {"model_type": "gemma2", "attention_bias": True, "tie_word_embeddings": False, "attn_logit_softcapping": None},
    {"model_type": "gemma3_text", **HEAD},
    {"model_type": "gemma3_text", "sliding_window_pattern": 2, "tie_word_embeddings": False},
    {"model_type": "phi3"},
    {"model_type": "phi3", "tie_word_embeddings": True, "partial_rotary_factor": 0.5},
    {"model_type": "olmo2"},
    {"model_type": "olmo2", "attention_bias": True, "tie_word_embeddings": True},
    {"model_type": "granite"},
    {"model_type": "granite", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    {"model_type": "cohere"},
    {"model_type": "cohere", "use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False},
    {"model_type": "cohere2", "attention_bias": True},
    {"model_type": "glm", **HEAD},
    {"model_type": "glm", "attention_bias": False, "tie_word_embeddings": True, **HEAD},
    {"model_type": "glm4", **HEAD},
    {"model_type": "smollm3"},
    {"model_type": "arcee", "attention_bias": True, "mlp_bias": True},
    {"model_type": "internlm3", "qkv_bias": True, "bias": True},
    {"model_type": "ministral", **HEAD},
    {"model_type": "ministral3", **HEAD},
    {"model_type": "seed_oss", **HEAD},
    {"model_type": "seed_oss", **HEAD, "attention_out_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    {"model_type": "hunyuan_v1_dense", **HEAD, "attention_bias": True},
    {"model_type": "ernie4_5", **HEAD, "use_bias": True, "tie_word_embeddings": False},
    {"model_type": "olmo3", "attention_bias": True},
    {"model_type": "exaone4", **HEAD, "sliding_window_pattern": "LLLG", "layer_types": ["full_attention"] * 5},
    {"model_type": "apertus", **HEAD, "attention_bias": True},
    {"model_type": "apertus", "hidden_act": "relu2", "tie_word_embeddings": True},
    {"model_type": "lfm2", "full_attn_idxs": [1, 4]},
    {
        "model_type": "lfm2",
        "layer_types": ["conv", "full_attention", "conv", "conv", "conv"],
        "tie_embedding": False,
        "block_multiple_of": 48,
        "block_ffn_dim_multiplier": 1.5,
        "block_ff_dim": 200,
        "conv_L_cache": 4,
    },
    {"model_type": "lfm2", "block_auto_adjust_ff_dim": False},
    {"model_type": "exaone", "attention_bias": True, "mlp_bias": True},
    {"model_type": "gemma4_text", **SMALL4},
    {"model_type": "gemma4_text", **SMALL4, "attention_bias": True, "tie_word_embeddings": False},
    {"model_type": "gemma4_text", **SMALL4, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
    {"model_type": "gemma4_text", **SMALL4, "hidden_size_per_layer_input": 16},
    {
        "model_type": "gemma4_text",
        **SMALL4,
        "hidden_size_per_layer_input": 16,
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
        "layer_types": FOURTH,
    },
    {"model_type": "gemma4_text", **SMALL4, "per_layer_config": {"4": {"head_dim": 40, "num_key_value_heads": 4}}},
    {"model_type": "smollm3", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
]


def _id(config: dict[str, Any]) -> str:
    return "-".join([config["model_type"], *(key for key in config if key != "model_type")])


def _real(config: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    body = dict(config)
    made = transformers.AutoConfig.for_model(body.pop("model_type"), **body)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(made)


@pytest.mark.parametrize("variant", VARIANTS, ids=_id)
def test_every_parameter_of_the_real_class_is_here_once(variant: dict[str, Any]) -> None:
    config = {**TINY, **variant}
    real = _real(config)
    model = build(config)
    ours = [(name, weight.elements) for name, weight in storages(model)]
    assert len({name for name, _ in ours}) == len(ours)
    assert dict(ours) == {name: tensor.numel() for name, tensor in real.named_parameters()}


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_defaults_are_those_of_the_config_class(kind: str) -> None:
    if kind == "llama":
        config: dict[str, Any] = {"model_type": kind, "num_hidden_layers": 6}
    else:
        config = {"model_type": kind, "num_hidden_layers": 7}
    real = _real(config)
    assert total(build(config)) == sum(tensor.numel() for tensor in real.parameters())


def _windows(model: Model) -> list[int]:
    """Each layer's sliding window."""
    found = {
        layer: op.spec.window
        for block in model.blocks
        for layer in block.layers
        for op in block.ops
        if isinstance(op.spec, Attention)
    }
    return [found[layer] for layer in sorted(found)]


def test_windows_alternate_as_the_config_class_says() -> None:
    def windows(**config: Any) -> list[int]:
        return _windows(build({**TINY, **config}))

    assert windows(model_type="mistral") == [4096] * 5
    assert windows(model_type="mistral", sliding_window=None) == [0] * 5
    assert windows(model_type="qwen2", max_window_layers=2) == [0] * 5
    assert windows(model_type="qwen2", max_window_layers=2, use_sliding_window=True) == [0, 0, 4096, 4096, 4096]
    assert windows(model_type="gemma") == [0] * 5
    assert windows(model_type="gemma2") == [4096, 0, 4096, 0, 4096]
    assert windows(model_type="gemma3_text", sliding_window_pattern=3, sliding_window=64) == [64, 64, 0, 64, 64]
    assert windows(model_type="cohere2") == [4096, 4096, 4096, 0, 4096]
    kinds = ["full_attention", *["sliding_attention"] * 4]
    assert windows(model_type="gemma2", layer_types=kinds) == [0, 4096, 4096, 4096, 4096]
    assert windows(model_type="ministral", sliding_window=8) == [8] * 5
    assert windows(model_type="olmo3") == windows(model_type="exaone4") == [4096, 4096, 4096, 0, 4096]
    assert windows(model_type="exaone4", sliding_window=None) == [0] * 5
    assert windows(model_type="smollm3", use_sliding_window=True, sliding_window=8) == [0, 0, 0, 8, 0]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"num_attention_heads": 7, "head_dim": None}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"head_dim": "wide"}, "head_dim"),
        ({"hidden_act": "mystery"}, "hidden_act"),
        ({"sliding_window": "long"}, "sliding_window"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": 5}, "layer_types"),
        ({"layer_types": [["full_attention"]] * 5}, "layer_types"),
        ({"use_sliding_window": "yes"}, "use_sliding_window"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"attention_dropout": -1}, "attention_dropout"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
    ],
)
def test_an_impossible_key_is_a_named_problem(change: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError) as raised:
        build({"model_type": "qwen3", **TINY, "use_sliding_window": True, **change})
    assert f"model.{key}" in {problem.path for problem in raised.value.problems}


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "glm", "partial_rotary_factor": 0}, "partial_rotary_factor"),
        ({"model_type": "phi3", "rope_scaling": {"partial_rotary_factor": "half"}}, "partial_rotary_factor"),
        ({"model_type": "smollm3", "no_rope_layers": [1, 0]}, "no_rope_layers"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "use_bidirectional_attention"),
    ],
)
def test_an_impossible_key_of_one_family_is_a_named_problem(config: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError) as raised:
        build({**TINY, **config})
    assert f"model.{key}" in {problem.path for problem in raised.value.problems}


def test_exaone_under_its_own_names() -> None:
    plain = {"model_type": "exaone", **TINY}
    named = {"model_type": "exaone", **TINY, "num_layers": 5, "activation_function": "gelu_new"}
    del named["num_hidden_layers"]
    own, other = build(named), build({**plain, "hidden_act": "gelu_new"})
    assert own == other != build(plain)

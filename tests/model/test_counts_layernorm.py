"""Parameters of the families with LayerNorm: name by name against the real classes."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.base.problems import InputError
from trainledger.model.build import build
from trainledger.model.counts import storages, total

TYPES = ("gpt2", "gpt_bigcode", "gpt_neox", "opt", "phi", "starcoder2", "falcon", "bloom", "mpt", "gptj", "codegen",
         "stablelm", "persimmon", "nemotron", "olmo", "modernbert", "bert", "roberta",
         "distilbert", "xlm-roberta", "camembert", "electra")  # fmt: skip

GPT: dict[str, Any] = {"vocab_size": 320, "n_positions": 64, "n_embd": 96, "n_layer": 3, "n_head": 4}
TINY: dict[str, Any] = {
    "vocab_size": 320, "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "pad_token_id": 0,
}  # fmt: skip
WIDE = {**TINY, "intermediate_size": 160}
ENCODER = {**WIDE, "max_position_embeddings": 64}
DISTIL = {
    "vocab_size": 320, "dim": 96, "n_layers": 3, "n_heads": 4, "hidden_dim": 160, "max_position_embeddings": 64,
}  # fmt: skip
MODERN = {**WIDE, "eos_token_id": 1, "bos_token_id": 2, "cls_token_id": 2, "sep_token_id": 1}
VARIANTS: list[dict[str, Any]] = [
    {"model_type": "gpt2", **GPT},
    {"model_type": "gpt2", **GPT, "n_inner": 200, "tie_word_embeddings": False},
    {"model_type": "gpt2", **TINY},
    {"model_type": "gpt_bigcode", **GPT},
    {"model_type": "gpt_bigcode", **GPT, "multi_query": False, "tie_word_embeddings": False},
    {"model_type": "gpt_neox", **WIDE},
    {"model_type": "gpt_neox", **WIDE, "attention_bias": False, "tie_word_embeddings": True},
    {"model_type": "opt", **TINY, "ffn_dim": 160},
    {"model_type": "opt", **TINY, "ffn_dim": 160, "word_embed_proj_dim": 48, "do_layer_norm_before": False},
    {"model_type": "opt", **TINY, "enable_bias": False, "layer_norm_elementwise_affine": False},
    {"model_type": "opt", **TINY, "word_embed_proj_dim": 48, "tie_word_embeddings": False},
    {"model_type": "phi", **WIDE},
    {"model_type": "phi", **WIDE, "num_key_value_heads": 2, "qk_layernorm": True, "tie_word_embeddings": True},
    {"model_type": "starcoder2", **WIDE},
    {"model_type": "starcoder2", **WIDE, "use_bias": False, "num_key_value_heads": 4, "tie_word_embeddings": False},
    {"model_type": "falcon", **TINY},
    {"model_type": "falcon", **TINY, "parallel_attn": False, "alibi": True, "bias": True, "multi_query": False},
    {"model_type": "falcon", **TINY, "new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 100},
    {"model_type": "falcon", **TINY, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
    {"model_type": "bloom", "vocab_size": 320, "hidden_size": 96, "n_layer": 3, "n_head": 4},
    {"model_type": "bloom", "vocab_size": 320, "n_embed": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
     "tie_word_embeddings": False},
    {"model_type": "mpt", "vocab_size": 320, "d_model": 96, "n_layers": 3, "n_heads": 4},
    {"model_type": "mpt", **{key: TINY[key] for key in TINY if key != "pad_token_id"}, "tie_word_embeddings": False},
    {"model_type": "gptj", **GPT, "rotary_dim": 8},
    {"model_type": "codegen", **GPT, "rotary_dim": 8, "n_inner": 200},
    {"model_type": "stablelm", **WIDE, "num_key_value_heads": 2, "use_qkv_bias": True},
    {"model_type": "stablelm", **WIDE, "num_key_value_heads": 4, "use_parallel_residual": True, "qk_layernorm": True},
    {"model_type": "persimmon", **WIDE},
    {"model_type": "persimmon", **WIDE, "qk_layernorm": False, "tie_word_embeddings": True},
    {"model_type": "nemotron", **WIDE, "num_key_value_heads": 2, "head_dim": 32},
    {"model_type": "nemotron", **WIDE, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4},
    {"model_type": "olmo", **WIDE, "attention_bias": True},
    {"model_type": "distilbert", **DISTIL},
    {"model_type": "distilbert", **DISTIL, "tie_word_embeddings": False},
    {"model_type": "distilbert", **DISTIL, "architectures": ["DistilBertForSequenceClassification"]},
    *({"model_type": "modernbert", **MODERN, "architectures": [f"ModernBertFor{head}"]}
      for head in ("MaskedLM", "SequenceClassification", "TokenClassification")),
    {"model_type": "modernbert", **MODERN, "norm_bias": True, "mlp_bias": True, "attention_bias": True,
     "classifier_bias": True, "decoder_bias": False, "tie_word_embeddings": False},
    {"model_type": "bert", **ENCODER},
    {"model_type": "bert", **ENCODER, "tie_word_embeddings": False, "type_vocab_size": 3},
    {"model_type": "roberta", **ENCODER},
    {"model_type": "xlm-roberta", **ENCODER, "tie_word_embeddings": False},
    {"model_type": "camembert", **ENCODER, "tie_word_embeddings": False},
    {"model_type": "roberta", **ENCODER, "tie_word_embeddings": False},
    *({"model_type": kind, **ENCODER, "architectures": [f"{name}For{head}"]}
      for kind, name in (("bert", "Bert"), ("roberta", "Roberta"))
      for head in ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering")),
    {"model_type": "xlm-roberta", **ENCODER, "architectures": ["XLMRobertaForSequenceClassification"]},
    {"model_type": "electra", **ENCODER, "embedding_size": 96},
    {"model_type": "electra", **ENCODER, "tie_word_embeddings": False},
    *({"model_type": "electra", **ENCODER, "embedding_size": 48, "architectures": [f"ElectraFor{head}"]}
      for head in ("MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering")),
    {"model_type": "bert", **ENCODER, "architectures": ["BertForPreTraining"]},
    {"model_type": "bert", **ENCODER, "architectures": ["BertForSequenceClassification"], "num_labels": 5},
]  # fmt: skip


def _real(config: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    body = dict(config)
    named = (body.pop("architectures", None) or [None])[0]
    encoder = body["model_type"] in (
        "bert",
        "roberta",
        "distilbert",
        "xlm-roberta",
        "camembert",
        "modernbert",
        "electra",
    )
    made = transformers.AutoConfig.for_model(body.pop("model_type"), **body)
    with torch.device("meta"):
        if named:
            return getattr(transformers, named)(made)
        kind = transformers.AutoModelForMaskedLM if encoder else transformers.AutoModelForCausalLM
        return kind.from_config(made)


def _id(config: dict[str, Any]) -> str:
    more = [key for key in config if key not in {*GPT, *ENCODER, *DISTIL, "model_type", "architectures"}]
    return "-".join([config["model_type"], *config.get("architectures", ()), *more])


@pytest.mark.parametrize("config", VARIANTS, ids=_id)
def test_every_parameter_of_the_real_class_is_here_once(config: dict[str, Any]) -> None:
    real = _real(config)
    ours = [(name, weight.elements) for name, weight in storages(build(config))]
    assert len({name for name, _ in ours}) == len(ours)
    assert dict(ours) == {name: tensor.numel() for name, tensor in real.named_parameters()}


@pytest.mark.parametrize("kind", TYPES)
def test_defaults_are_those_of_the_config_class(kind: str) -> None:
    layers = {
        "gpt2": "n_layer",
        "gpt_bigcode": "n_layer",
        "bloom": "n_layer",
        "mpt": "n_layers",
        "distilbert": "n_layers",
    }
    config: dict[str, Any] = {"model_type": kind, layers.get(kind, "num_hidden_layers"): 2}
    if kind == "nemotron":
        config["num_key_value_heads"] = 8  # the class has none, and cannot be built without
    assert total(build(config)) == sum(tensor.numel() for tensor in _real(config).parameters())


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "gpt2", **GPT, "n_head": 7}, "n_head"),
        ({"model_type": "gpt2", **GPT, "add_cross_attention": True}, "add_cross_attention"),
        ({"model_type": "gpt2", **GPT, "reorder_and_upcast_attn": True}, "reorder_and_upcast_attn"),
        ({"model_type": "gpt2", **GPT, "activation_function": "mystery"}, "activation_function"),
        ({"model_type": "gpt_bigcode", **GPT, "multi_query": 3}, "multi_query"),
        ({"model_type": "gpt_neox", **WIDE, "num_attention_heads": 5}, "num_attention_heads"),
        ({"model_type": "gpt_neox", **WIDE, "rotary_pct": 2}, "partial_rotary_factor"),
        ({"model_type": "opt", **TINY, "layerdrop": 0.1}, "layerdrop"),
        ({"model_type": "opt", **TINY, "word_embed_proj_dim": "wide"}, "word_embed_proj_dim"),
        ({"model_type": "phi", **WIDE, "num_key_value_heads": 3}, "num_key_value_heads"),
        ({"model_type": "falcon", **TINY, "num_attention_heads": 5}, "num_attention_heads"),
        ({"model_type": "falcon", **TINY, "parallel_attn": False, "new_decoder_architecture": True}, "parallel_attn"),
        ({"model_type": "falcon", **TINY, "num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn"),
        ({"model_type": "codegen", **GPT, "n_head": 6}, "n_head"),
        ({"model_type": "bloom", "n_head": 5}, "n_head"),
        ({"model_type": "bloom", "pretraining_tp": 2, "slow_but_exact": True}, "slow_but_exact"),
        ({"model_type": "mpt", "attn_config": {"clip_qkv": 6}}, "attn_config.clip_qkv"),
        ({"model_type": "mpt", "attn_config": 3}, "attn_config"),
        ({"model_type": "bert", **ENCODER, "architectures": ["BertForDreams"]}, "architectures"),
        ({"model_type": "bert", **ENCODER, "architectures": 5}, "architectures"),
        ({"model_type": "roberta", **ENCODER, "architectures": ["RobertaForPreTraining"]}, "architectures"),
        ({"model_type": "electra", **ENCODER, "architectures": ["ElectraForPreTraining"]}, "architectures"),
        ({"model_type": "distilbert", **DISTIL, "architectures": ["DistilBertModel"]}, "architectures"),
        ({"model_type": "modernbert", **MODERN, "architectures": ["ModernBertModel"]}, "architectures"),
        (
            {
                "model_type": "modernbert",
                **MODERN,
                "classifier_pooling": "mean",
                "architectures": ["ModernBertForSequenceClassification"],
            },
            "classifier_pooling",
        ),
        ({"model_type": "bert", **ENCODER, "is_decoder": True}, "is_decoder"),
    ],
)
def test_an_impossible_key_is_a_named_problem(config: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError) as raised:
        build(config)
    assert f"model.{key}" in {problem.path for problem in raised.value.problems}

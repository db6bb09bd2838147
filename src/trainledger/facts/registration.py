"""The order in which model classes register a layer's parameters, where it is not that of their use.

What is flattened, cut or gathered over all parameters follows `model.parameters()`, and so this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Registration:
    """The first parts of parameters' names in their order, for these families. The longest that fits counts; names that
    none fits come last, in the order of their use. `early`: what stands behind the layers and is registered before;
    `leading`: what is registered before all else."""

    families: tuple[str, ...]
    order: tuple[str, ...]
    source: Source
    early: str = ""
    leading: tuple[str, ...] = ()


def _classes(families: str) -> Source:
    return Source("Transformers model classes", f"transformers/models/{families}/modeling_*.py, __init__", "5.24.0")


REGISTRATIONS: tuple[Registration, ...] = (
    Registration(
        (
            "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "gemma", "gemma2", "gemma3_text",
            "cohere", "cohere2", "glm", "glm4", "granite", "olmo2", "olmoe", "smollm3", "starcoder2", "phi",
            "arcee", "internlm3", "exaone", "olmo", "nemotron",
            "minimax_m2", "ministral", "ministral3", "seed_oss", "hunyuan_v1_dense", "ernie4_5", "olmo3", "exaone4",
        ),
        (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.dense",
            "self_attn.q_norm", "self_attn.k_norm", "self_attn.query_layernorm", "self_attn.key_layernorm",
            "mlp.gate.", "mlp.experts", "mlp",
            "block_sparse_moe.gate.", "block_sparse_moe", "input_layernorm", "post_attention_layernorm",
            "pre_feedforward_layernorm", "post_feedforward_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm",
        ),
        _classes("{llama,qwen2,qwen3,gemma2,cohere,glm4,olmo2,phi,...}"),
    ),
    Registration(
        ("granitemoe", "granitemoeshared"),
        ("self_attn", "input_layernorm", "post_attention_layernorm", "block_sparse_moe", "shared_mlp"),
        _classes("{granitemoe,granitemoeshared}"),
    ),
    Registration(
        ("apertus",),
        (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn",
            "mlp.up_proj", "mlp.down_proj", "mlp", "attention_layernorm", "feedforward_layernorm",
        ),
        _classes("apertus"),
    ),
    Registration(
        ("lfm2", "lfm2_moe"),
        (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "self_attn",
            "conv.conv", "conv.in_proj", "conv.out_proj", "feed_forward.w1", "feed_forward.w3", "feed_forward.w2",
            "feed_forward.experts", "feed_forward", "operator_norm", "ffn_norm",
        ),
        _classes("{lfm2,lfm2_moe}"),
    ),
    Registration(
        ("qwen3_moe",),
        (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn",
            "mlp.experts", "mlp", "input_layernorm", "post_attention_layernorm",
        ),
        _classes("qwen3_moe"),
    ),
    Registration(
        ("phi3",),
        ("self_attn.o_proj", "self_attn", "mlp", "input_layernorm", "post_attention_layernorm"),
        _classes("phi3"),
    ),
    Registration(
        ("opt",),
        (
            "self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj", "self_attn.out_proj", "self_attn_layer_norm",
            "fc1", "fc2", "final_layer_norm",
        ),
        _classes("opt"),
        "model.decoder.final_layer_norm",
    ),
    Registration(
        ("gpt_neox",),
        ("input_layernorm", "post_attention_layernorm", "attention", "mlp"),
        _classes("gpt_neox"),
    ),
    Registration(
        ("falcon",),
        ("self_attention", "mlp", "post_attention_layernorm", "input_layernorm", "ln_attn", "ln_mlp"),
        _classes("falcon"),
    ),
    Registration(
        ("gptj",),
        ("ln_1", "attn.k_proj", "attn.v_proj", "attn.q_proj", "attn", "mlp"),
        _classes("gptj"),
    ),
    Registration(("codegen",), ("ln_1", "attn.out_proj", "attn.qkv_proj", "mlp"), _classes("codegen")),
    Registration(
        ("stablelm", "persimmon"),
        (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.query_key_value", "self_attn.dense",
            "self_attn", "mlp", "input_layernorm",
        ),
        _classes("{stablelm,persimmon}"),
    ),
    Registration(
        ("glm4_moe", "dots1", "solar_open"),
        (
            "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn",
            "mlp.experts", "mlp", "input_layernorm",
        ),
        _classes("{glm4_moe,dots1,solar_open}"),
    ),
    Registration(
        ("llama4_text",),
        ("self_attn", "feed_forward.experts", "feed_forward.router", "feed_forward", "input_layernorm"),
        _classes("llama4"),
    ),
    Registration(
        ("gemma4_text",),
        (
            "self_attn.q_proj", "self_attn.q_norm", "self_attn.k_norm", "self_attn.k_proj", "self_attn.v_proj",
            "self_attn.o_proj", "mlp", "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm.",
            "post_feedforward_layernorm.", "per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm",
            "router.scale", "router.per_expert_scale", "router.proj", "experts", "post_feedforward_layernorm_1",
            "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2",
        ),
        _classes("gemma4"),
    ),
    Registration(("gpt_oss",), ("self_attn.sinks", "self_attn", "mlp"), _classes("gpt_oss")),
    Registration(
        ("bert",),
        (
            "bert.embeddings.word", "bert.embeddings.position", "bert.embeddings.token_type", "bert.embeddings",
            "cls.predictions.bias", "cls",
        ),
        _classes("bert"),
    ),
    Registration(
        ("electra",),
        (
            "electra.embeddings.word", "electra.embeddings.position", "electra.embeddings.token_type",
            "electra.embeddings.", "electra.embeddings_project", "generator_predictions.LayerNorm",
            "generator_predictions", "generator_lm_head",
        ),
        _classes("electra"),
    ),
    Registration(
        ("roberta",),
        (
            "roberta.embeddings.word", "roberta.embeddings.token_type", "roberta.embeddings.LayerNorm",
            "roberta.embeddings.position", "lm_head.bias", "lm_head",
        ),
        _classes("roberta"),
    ),
    Registration(
        ("xlm-roberta",),
        (
            "roberta.embeddings.word", "roberta.embeddings.token_type", "roberta.embeddings.LayerNorm",
            "roberta.embeddings.position", "lm_head.bias", "lm_head",
        ),
        _classes("{xlm_roberta,camembert}"),
        leading=("lm_head", "classifier", "qa_outputs"),
    ),
    Registration(
        ("megatron-gpt",),
        (
            "enorm", "hnorm", "eh_proj", "input_layernorm", "self_attention.linear_proj", "self_attention.linear_q",
            "self_attention.linear_kv", "self_attention", "pre_mlp_layernorm", "mlp.router", "mlp.experts",
            "mlp.shared_experts", "mlp", "final_layernorm",
        ),
        Source(
            "Megatron-Core, modules of a layer",
            "megatron/core/transformer/{transformer_layer,attention,multi_latent_attention,moe/moe_layer,mlp,"
            "multi_token_prediction}.py, __init__",
            "core_v0.8.0 to core_v0.19.0",
        ),
    ),
)  # fmt: skip


@cache
def rank_in(family: str, name: str) -> int:
    """Where a parameter of this name stands among those of its layer: a key to sort by, stable for equal ones."""
    row = _row(family)
    if row is None:
        return 0
    fitting = [(len(start), at) for at, start in enumerate(row.order) if name.startswith(start)]
    return max(fitting)[1] if fitting else len(row.order)


def is_early(family: str, name: str) -> bool:
    """Whether a parameter that stands behind the layers is registered before them."""
    row = _row(family)
    return row is not None and bool(row.early) and name.startswith(row.early)


def is_leading(family: str, name: str) -> bool:
    """Whether a parameter that stands behind the layers is registered before all others."""
    row = _row(family)
    return row is not None and name.startswith(row.leading)


def _row(family: str) -> Registration | None:
    return next((one for one in REGISTRATIONS if family in one.families), None)

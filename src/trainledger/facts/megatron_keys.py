"""How a Hugging Face model's keys become those of Megatron-Core's GPT, by `model_type`: what providers set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source

Value = str | bool | float


@dataclass(frozen=True, slots=True)
class MegatronType:
    """One `model_type`. `renamed`: its keys that have another name in a plan of Megatron's, old name first;
    `settings`: what its provider sets; `alike`: keys of its own that must have one of these values (or be left out), or
    Megatron-Core would not build the same model."""

    name: str
    renamed: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, Value], ...]
    alike: tuple[tuple[str, tuple[object, ...]], ...]
    source: Source


@dataclass(frozen=True, slots=True)
class Padding:
    """A vocabulary is padded to a multiple of `multiple` x tp, or of the option's value x tp, by these frameworks;
    Megatron-Bridge takes a checkpoint's vocabulary as it is."""

    option: str
    multiple: int
    frameworks: tuple[str, ...]
    source: Source


PADDING = Padding(
    "make_vocab_size_divisible_by",
    128,
    ("megatron", "nemo"),
    Source(
        "Megatron-LM: padding of the vocabulary",
        "megatron/training/tokenizer/tokenizer.py, _vocab_size_with_padding; NeMo, get_vocab_size",
        "2026-08",
    ),
)


@dataclass(frozen=True, slots=True)
class Widening:
    """The feed-forward's width over the hidden size where neither config nor argument gives it."""

    times: int
    source: Source


WIDENING = Widening(4, Source("Megatron-LM arguments, ffn_hidden_size", "megatron/training/arguments.py", "2026-08"))


def _bridge(file: str) -> Source:
    path = f"src/megatron/bridge/models/{file}; conversion/model_bridge.py, CONFIG_MAPPING"
    return Source("Megatron-Bridge providers", path, "067f987, 2026-08")


def _row(
    name: str,
    source: Source,
    settings: Mapping[str, Value],
    alike: Mapping[str, tuple[object, ...]],
    renamed: tuple[tuple[str, str], ...] = (),
) -> MegatronType:
    every = (*((same, same) for same in SAME), *renamed)
    return MegatronType(name, every, tuple(settings.items()), tuple(alike.items()), source)


SAME = (
    "name", "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
    "head_dim", "vocab_size", "max_position_embeddings", "attention_dropout", "tie_word_embeddings",
)  # fmt: skip
_LLAMA: dict[str, Value] = {
    "position_embedding_type": "rope", "normalization": "RMSNorm", "hidden_act": "silu", "gated_linear_unit": True,
    "add_bias_linear": False, "add_qkv_bias": False, "qk_layernorm": False, "hidden_dropout": 0.0,
}  # fmt: skip
_SILU: dict[str, tuple[object, ...]] = {"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)}
_EVERY_LAYER = {"decoder_sparse_step": (1,), "mlp_only_layers": ([],)}
_EXPERTS = ("num_experts_per_tok", "moe_intermediate_size")
_LATENT = (
    *((same, same) for same in _EXPERTS),
    ("n_routed_experts", "num_experts"),
    *(
        (same, same)
        for same in (
            "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
            "first_k_dense_replace", "num_nextn_predict_layers", "n_shared_experts",
        )
    ),
)  # fmt: skip
_DEEPSEEK: dict[str, tuple[object, ...]] = {**_SILU, "moe_layer_freq": (1,)}
MIXTRAL = Source("Megatron-LM, a script that trains Mixtral 8x7B", "examples/mixtral", "2026-08")
GPT = Source(
    "Megatron-LM, arguments of GPT: its defaults are GPT-2's layers", "megatron/training/arguments.py", "2026-08"
)
_GPT2: dict[str, Value] = {
    "position_embedding_type": "learned_absolute", "normalization": "LayerNorm", "hidden_act": "gelu",
    "gated_linear_unit": False, "add_bias_linear": True, "add_qkv_bias": True, "qk_layernorm": False,
}  # fmt: skip

TYPES: Mapping[str, MegatronType] = {
    row.name: row
    for row in (
        _row("llama", _bridge("llama/llama_bridge.py"), _LLAMA, _SILU),
        _row("mistral", _bridge("mistral/{mistral_bridge,mistral_provider}.py"), _LLAMA, _SILU),
        _row("qwen2", _bridge("qwen/qwen2_bridge.py"), {**_LLAMA, "add_qkv_bias": True},
             {"hidden_act": ("silu",), "use_sliding_window": (False,)}),
        _row("qwen3", _bridge("qwen/qwen3_bridge.py"), {**_LLAMA, "qk_layernorm": True},
             {**_SILU, "use_sliding_window": (False,)}),
        _row("qwen3_moe", _bridge("qwen/qwen3_moe_bridge.py"), {**_LLAMA, "qk_layernorm": True},
             {**_SILU, **_EVERY_LAYER, "use_sliding_window": (False,)},
             (("num_experts", "num_experts"), *((same, same) for same in _EXPERTS))),
        _row("mixtral", MIXTRAL, _LLAMA, _SILU,
             (("num_local_experts", "num_experts"), ("num_experts_per_tok", "num_experts_per_tok"))),
        *(
            _row(name, _bridge(f"{file}.py"), {**_LLAMA, "qk_layernorm": True}, _DEEPSEEK, _LATENT)
            for name, file in (
                ("deepseek_v2", "deepseek/deepseek_v2_bridge"), ("deepseek_v3", "deepseek/deepseek_v3_bridge"),
                ("kimi_k2", "kimi/kimi_bridge"),
            )
        ),
        _row("gpt2", GPT, _GPT2,
             {"activation_function": ("gelu_new", "gelu"), "add_cross_attention": (False,)},
             (("n_embd", "hidden_size"), ("n_layer", "num_hidden_layers"), ("n_head", "num_attention_heads"),
              ("n_inner", "intermediate_size"), ("n_positions", "max_position_embeddings"),
              ("attn_pdrop", "attention_dropout"), ("resid_pdrop", "hidden_dropout"))),
    )
}  # fmt: skip

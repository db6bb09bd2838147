"""Transformer Engine's recipes of 8-bit products: what a quantised tensor is made of."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Recipe:
    """`names`: what Megatron-Core and Transformer Engine call it. `block`, `weight_block`: elements of an input or
    gradient, and of a weight, that share a scale (0: all, whose one scale is not counted) of `scale` bytes.
    `straight`: the products of architectures from `DIRECT.since` on read a tensor either way, so that it has one copy;
    elsewhere one copy of its rows and one of its columns. `rows_gathered`: ranks exchange rows only. `fused`: the
    norm's kernel writes 8 bits itself. `align`: rows of an expert are padded to a multiple of it. `kept`: whether a
    layer can keep its input as it came and quantise it again in backward."""

    names: tuple[str, ...]
    block: int
    weight_block: int
    scale: int
    straight: bool
    rows_gathered: bool
    fused: bool
    align: int
    kept: bool
    source: Source


def _tensors(path: str) -> Source:
    return Source("Transformer Engine quantised tensors", f"pytorch/tensor/{path}; pytorch/module/*.py", "2.7 to 2.17")


RECIPES = (
    Recipe(("delayed",), 0, 0, 0, True, True, True, 16, False, _tensors("float8_tensor.py, Float8Quantizer")),
    Recipe(
        ("tensorwise", "current", "current_scaling"), 0, 0, 0, True, True, False, 16, True,
        _tensors("float8_tensor.py, Float8CurrentScalingQuantizer"),
    ),
    Recipe(
        ("blockwise", "blockwise_scaling", "subchannel"), 128, 128**2, 4, False, False, False, 16, True,
        _tensors("float8_blockwise_tensor.py"),
    ),
    Recipe(("mxfp8",), 32, 32, 1, False, False, False, 32, True, _tensors("mxfp8_tensor.py")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Direct:
    """The architecture from which 8-bit products read their factors in either layout."""

    since: int
    source: Source


DIRECT = Direct(
    100, Source("Transformer Engine is_non_tn_fp8_gemm_supported", "common/util/cuda_driver; pytorch/utils.py", "2.17")
)


@dataclass(frozen=True, slots=True)
class Histories:
    """What a layer keeps for each of its products under delayed scaling: a scale and `length` largest values, in fp32,
    of each tensor that it quantises `forward` and `backward`."""

    forward: int
    backward: int
    length: int
    option: str
    source: Source


HISTORIES = Histories(
    3, 2, 1, "fp8_amax_history_len",
    Source(
        "Transformer Engine: delayed scaling",
        "pytorch/quantization.py, DelayedScalingRecipeState; module/base.py, set_meta_tensor; Megatron-LM "
        "training/arguments.py, --fp8-amax-history-len",
        "2.7 to 2.18; 0.14 to 0.19",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ends:
    """Layers at each end of the decoder that stay in 16 bits with first_last_layers_bf16, unless the plan says more."""

    first: int
    last: int
    source: Source


ENDS = Ends(
    1, 1,
    Source("Megatron-Core TransformerConfig", "num_layers_at_start_in_bf16, num_layers_at_end_in_bf16", "0.12 to 0.19"),
)  # fmt: skip

# layers of Megatron-Core whose input is kept as it came, by the end of their weight's name: an attention's output and
# a norm's are kept by others, too
OWN_INPUT = ("self_attention.linear_proj.weight", "mlp.shared_experts.linear_fc1.weight")
# and those that do because a module runs again whose output they read
OWN_INPUT_AGAIN = {
    "layernorm": (
        "self_attention.linear_q_down_proj.weight", "self_attention.linear_kv_down_proj.weight",
        "self_attention.linear_q_proj.weight", "mlp.linear_fc1.weight",
    ),
    "moe_act": ("mlp.experts.linear_fc2.weight",),
}  # fmt: skip
OWN_INPUT_SOURCE = Source(
    "Megatron-Core, set_save_original_input",
    "megatron/core/transformer/{attention,multi_latent_attention,transformer_layer}.py; "
    "moe/{experts,shared_experts}.py",
    "0.14 to 0.19",
)


def recipe_of(name: str) -> Recipe | None:
    """The recipe of this name."""
    return next((row for row in RECIPES if name in row.names), None)

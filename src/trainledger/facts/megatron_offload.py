"""Megatron-Core: modules whose saved tensors go to the host, and modules whose output is made once more."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source

OPTION, MODULES, LEAST = "fine_grained_activation_offloading", "offload_modules", "min_offloaded_tensor_size"
_ATTENTION = "self_attention"


@dataclass(frozen=True, slots=True)
class Span:
    """A module of the option's words: operations by name, or by its start where that ends in a dot (`but` those), and
    the operation before which (`before`) or after which its tensors go."""

    name: str
    operations: str
    end: str
    before: bool = False
    but: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offload:
    """Modules whose saved tensors go, and the least elements of one that does; parts of a layer whose output is emptied
    once its readers have run, and made once more."""

    spans: tuple[Span, ...]
    remade: tuple[Span, ...]
    least: int
    source: Source


OFFLOAD = Offload(
    (
        Span("attn_norm", "input_layernorm", "self_attn_bda"),
        Span(
            "qkv_linear", f"{_ATTENTION}.", f"{_ATTENTION}.core_attention", True,
            (f"{_ATTENTION}.core_attention", f"{_ATTENTION}.linear_proj"),
        ),
        Span("core_attn", f"{_ATTENTION}.core_attention", f"{_ATTENTION}.core_attention"),
        Span("attn_proj", f"{_ATTENTION}.linear_proj", f"{_ATTENTION}.linear_proj"),
        Span("mlp_norm", "pre_mlp_layernorm", "mlp_bda"),
        Span("expert_fc1", "expert_fc1", "expert_fc1"),
        Span("moe_act", "moe_act", "expert_fc2"),
    ),
    (
        Span("layernorm", "input_layernorm", "self_attn_bda", True),
        Span("layernorm", "pre_mlp_layernorm", "mlp_bda", True),
        Span("moe_act", "moe_act", "expert_fc2"),
    ),
    1_048_576,
    Source(
        "Megatron-Core: fine-grained activation offloading",
        "megatron/core/pipeline_parallel/fine_grained_activation_offload.py; transformer/{transformer_layer,attention,"
        "multi_latent_attention}.py, moe/experts.py; tensor_parallel/random.py, CheckpointWithoutOutput",
        "0.14 to 0.19",
    ),
)  # fmt: skip

COUNT = "cpu_offloading_num_layers"


@dataclass(frozen=True, slots=True)
class Layers:
    """Whole layers whose saved tensors go: the least elements of one that does."""

    least: int
    source: Source


LAYERS = Layers(
    262_144,
    Source(
        "Transformer Engine: layers whose saved tensors go to the host",
        "transformer_engine/pytorch/cpu_offload.py; megatron/core/transformer/transformer_block.py",
        "2.18; 0.14 to 0.19",
    ),
)

FRACTION, PINS = "optimizer_offload_fraction", "pin_cpu_grads"


@dataclass(frozen=True, slots=True)
class Hybrid:
    """The optimizer on the host: which share of its elements lies there where none is asked for."""

    fraction: float
    source: Source


HYBRID = Hybrid(
    1.0,
    Source(
        "Megatron-Core: optimizer on the host",
        "megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py; training/arguments.py, "
        "--optimizer-offload-fraction",
        "0.12 to 0.19",
    ),
)

UP = "mla_up_proj"  # from the latents' copy to the rotated queries, keys and values
UP_FIRST, UP_LAST, UP_END = f"{_ATTENTION}.latents", f"{_ATTENTION}.rotary", f"{_ATTENTION}.core_attention"
AGAIN = ("layernorm", UP, "moe_act")

"""Megatron-Core's CUDA graphs of parts of layers: which tensors are made within them."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source

ATTENTION = "attn"


@dataclass(frozen=True, slots=True)
class Graphs:
    """`kinds`: values of the option `kind` that capture parts of layers; of `static`'s, every layer of a micro-batch in
    flight has inputs of its own. `parts`: options that name the parts, the newest first; `scopes`: by part, the modules
    of a layer that are captured; `whole`: values that name no part but the whole layer."""

    kind: str
    kinds: tuple[str, ...]
    static: str
    parts: tuple[str, ...]
    scopes: dict[str, tuple[str, ...]]
    whole: tuple[str, ...]
    source: Source


GRAPHS = Graphs(
    "cuda_graph_impl",
    ("transformer_engine", "local"),
    "transformer_engine",
    ("cuda_graph_modules", "cuda_graph_scope"),
    {
        ATTENTION: ("input_layernorm", "self_attention", "self_attn_bda"),
        "mlp": ("mlp.linear_fc1", "mlp.activation_func", "mlp.linear_fc2"),
        "moe": ("pre_mlp_layernorm", "mlp", "mlp_bda"),
        "moe_router": ("pre_mlp_layernorm", "mlp.router", "mlp.shared_experts"),
        "moe_preprocess": ("mlp.token_dispatcher: map of rows",),
    },
    ("full",),
    Source(
        "Megatron-Core, Transformer Engine, PyTorch",
        "megatron/core/transformer/cuda_graphs.py, TECudaGraphHelper; transformer_layer.py, get_layer_static_inputs; "
        "transformer_engine/pytorch/graph.py, _make_graphed_callables; torch/cuda/graphs.py",
        "2026-08",
    ),
)
LAYER = ("input_layernorm", "self_attention", "self_attn_bda", "pre_mlp_layernorm", "mlp", "mlp_bda")

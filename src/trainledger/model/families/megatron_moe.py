"""Megatron-Core's mixture of experts: a router, routed experts, and where there are any a shared one.

Names are Megatron's own; experts' weights are stacks here. Source: megatron/core/transformer/moe/{moe_layer,router,
experts,shared_experts}.py, models/gpt/moe_module_specs.py (0.14 to 0.19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainledger.base.dims import Dim, Dims
from trainledger.model.keys import Keys
from trainledger.model.operations_megatron import Activated, Along, Joined
from trainledger.model.operations_megatron_moe import (
    EXPERTS,
    Combined,
    Dispatched,
    GroupedExperts,
    Returned,
    Routes,
    Shared,
)
from trainledger.model.parts import axis
from trainledger.model.program import Op, Role, Weight

if TYPE_CHECKING:
    from trainledger.model.families.megatron_gpt import Shape

SHARED = "mlp.shared_experts"
SENT = ("sent", "received", "received_probs", "order")  # names of the layer's forward, to its end


def routed(keys: Keys) -> bool:
    """Whether some layers have experts."""
    return keys.raw("num_experts") is not None


def routed_layers(keys: Keys, layers: int) -> tuple[bool, ...]:
    """Whether each layer has experts: from `first_k_dense_replace` on, one in `moe_layer_freq`, or as its list says."""
    first = keys.integer("first_k_dense_replace", default=0, least=0)
    given = keys.raw("moe_layer_freq", default=1)
    if isinstance(given, list | tuple):
        if len(given) != layers:
            keys.refuse("moe_layer_freq", given, f"one entry for each of {layers} layers is needed")
            return (True,) * layers
        return tuple(bool(one) for one in given)
    every = keys.integer("moe_layer_freq", default=1)
    return tuple(at >= first and at % every == 0 for at in range(layers))


def feed_forward(shape: Shape, keys: Keys, gated: bool) -> tuple[Op, ...]:
    """A layer's mixture of experts: reads `h`, adds to it."""
    experts, top_k = keys.integer("num_experts"), keys.integer("num_experts_per_tok", default=1)
    hidden, many = shape.hidden, axis(Dim.EXPERTS, experts)
    width = keys.integer("moe_intermediate_size", "intermediate_size")
    wide = axis(Dim.FFN, width + width if gated else width)
    if top_k > experts:
        keys.refuse("num_experts_per_tok", top_k, f"at most {experts}, the number of experts, is needed")
    up = Weight(f"{EXPERTS}.linear_fc1.weight", (*many, *wide, *hidden), Role.EXPERT)
    down = Weight(f"{EXPERTS}.linear_fc2.weight", (*many, *hidden, *axis(Dim.FFN, width)), Role.EXPERT)
    bias = Weight("mlp.router.bias", many, Role.ROUTER) if shape.biased else None
    router = Routes(Weight("mlp.router.weight", (*many, *hidden), Role.ROUTER), top_k, bias)
    inner = _biases(many, wide, hidden) if shape.biased else ()
    made = GroupedExperts(up, down, gated, top_k, biases=inner)
    shared = _shared(shape, keys, gated)
    if shape.biased and shared:
        keys.refuse("add_bias_linear", True, "Megatron-Core's shared experts have no biases")
    ended = () if shared else SENT
    added = (Op("mlp.shared", Shared(), ("x", "s"), ("x",), shape.hidden, ("s", *SENT)),) if shared else ()
    return (
        shape.norm("pre_mlp_layernorm", "h", "n"),
        *shared,
        Op("mlp.router", router, ("n",), ("probs", "map"), many),
        Op("mlp.token_dispatcher", Dispatched(top_k), ("n", "probs", "map"), SENT, hidden),
        Op(EXPERTS, made, ("received", "received_probs", "order"), ("x",), hidden),
        Op("mlp.token_combine", Returned(experts, top_k), ("x",), ("x",), hidden),
        Op("mlp.unpermute", Combined(experts, top_k), ("x", "order"), ("x",), hidden, ended),
        *added,
        Op("mlp_bda", Joined(shape.dropout), ("h", "x"), ("h",), hidden, ("x",)),
    )  # fmt: skip


def _biases(many: Dims, wide: Dims, hidden: Dims) -> tuple[Weight, ...]:
    """Stacks of the experts' biases."""
    layers = (("linear_fc1", wide), ("linear_fc2", hidden))
    return tuple(Weight(f"{EXPERTS}.{name}.bias", (*many, *dims), Role.EXPERT) for name, dims in layers)


def _shared(shape: Shape, keys: Keys, gated: bool) -> tuple[Op, ...]:
    """The shared expert, a dense feed-forward over all tokens, before the router."""
    width = keys.integer("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", default=0, least=0)
    if not width:
        return ()
    inner, wide = axis(Dim.FFN, width), axis(Dim.FFN, width + width if gated else width)
    up = shape.linear(f"{SHARED}.linear_fc1", Along.COLUMN, shape.hidden, wide)
    down = shape.linear(f"{SHARED}.linear_fc2", Along.ROW, inner, shape.hidden)
    return (
        Op(f"{SHARED}.linear_fc1", up, ("n",), ("s",), wide),
        Op(f"{SHARED}.activation_func", Activated(gated, up.bias), ("s",), ("s",), inner),
        Op(f"{SHARED}.linear_fc2", down, ("s",), ("s",), shape.hidden),
    )

"""Pieces of mixture-of-experts decoders: router, routed and shared experts, and which layers have them.

Source: transformers (5.24.0) integrations/moe.py: experts run by `grouped_mm_experts_forward` unless told otherwise;
the classes named in each family's module.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.decoder import act_of, grouped, leaving
from trainledger.model.keys import Keys
from trainledger.model.parts import axis, gated, linear
from trainledger.model.program import (
    Act,
    ActKind,
    Add,
    Block,
    ClampedExperts,
    Experts,
    Linear,
    Multiply,
    Op,
    Role,
    Router,
    ScaledBest,
    SigmoidRouter,
    Weight,
)

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
TOP_K = ("num_experts_per_tok", "top_k_experts")
EXPERT_WIDTH = ("moe_intermediate_size",)
LAYERS = "model.layers"
NO_SHARED = "a feed-forward of no width (n_shared_experts: 0) is not covered"
ROUTED = (Experts, ClampedExperts, SigmoidRouter, ScaledBest)  # what knows how many experts a token takes


def routed(keys: Keys) -> tuple[int, int]:
    """How many experts there are, and how many a token takes; more than there are is a problem."""
    experts, top_k = keys.integer(*EXPERTS), keys.integer(*TOP_K)
    if top_k > experts:
        given = next((name for name in TOP_K if keys.raw(name) is not None), *TOP_K[:1])
        keys.refuse(given, top_k, f"at most num_experts = {experts} can be taken")
    return experts, top_k


def router_weight(keys: Keys, name: str, hidden: Dims) -> Weight:
    """The router's weight [experts, hidden]."""
    return Weight(f"{name}.weight", (Axis(Dim.EXPERTS, keys.integer(*EXPERTS)), *hidden), Role.ROUTER)


def expert_weights(keys: Keys, prefix: str, hidden: Dims, width: int) -> tuple[Weight, Weight]:
    """The two stacked weights: gate and up [experts, 2 x width, hidden], down [experts, hidden, width]."""
    count = Axis(Dim.EXPERTS, keys.integer(*EXPERTS))
    return (
        Weight(f"{prefix}.gate_up_proj", (count, Axis(Dim.FFN, width + width), *hidden), Role.EXPERT),
        Weight(f"{prefix}.down_proj", (count, *hidden, Axis(Dim.FFN, width)), Role.EXPERT),
    )


def transposed(keys: Keys, prefix: str, hidden: Dims, width: int) -> tuple[Weight, Weight]:
    """The same weights stored as [experts, hidden, 2 x width] and [experts, width, hidden]."""
    gate_up, down = expert_weights(keys, prefix, hidden, width)
    return _turned(gate_up), _turned(down)


def _turned(weight: Weight) -> Weight:
    return replace(weight, dims=(weight.dims[0], *reversed(weight.dims[1:])))


def sparse(keys: Keys, hidden: Dims, width: int, normalise: bool, upcast: bool = False) -> tuple[Op, Op]:
    """Router and routed experts: reads `x`, leaves their sum in `x`. Router's outputs live until the block ends."""
    _, top_k = routed(keys)
    gate_up, down = expert_weights(keys, "mlp.experts", hidden, width)
    router = Router(router_weight(keys, "mlp.gate", hidden), top_k, normalise, upcast)
    made = ("router_logits", "scores", "chosen")
    return (
        Op("mlp.gate", router, ("x",), made, router.weight.dims[:1]),
        Op("mlp.experts", Experts(top_k, gate_up, down, act_of(keys)), ("x", *made[1:]), ("x",), hidden, made),
    )


def with_shared(keys: Keys, hidden: Dims, ops: tuple[Op, Op]) -> tuple[Op, ...]:
    """Routed experts beside one that every token takes, weighed by a gate of its own (Qwen2MoeSparseMoeBlock)."""
    one = axis(Dim.ONE, 1)
    router, experts = ops
    return (
        *rows(leaving(gated("mlp.shared_expert", hidden, shared_width(keys), act_of(keys)), "shared")),
        router,
        replace(experts, outs=("routed",), drop=()),
        *rows((Op("mlp.shared_expert_gate", linear("mlp.shared_expert_gate", hidden, one), ("x",), ("weight",), one),)),
        Op("mlp", Act(ActKind.SIGMOID), ("weight",), ("weight",), one),
        Op("mlp", Multiply(), ("weight", "shared"), ("shared",), hidden, ("weight",)),
        Op("mlp", Add(), ("routed", "shared"), ("x",), hidden, (*experts.drop, "routed", "shared")),
    )


def rows(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """The same operations on tokens seen as rows of a matrix."""
    return tuple(replace(op, spec=replace(op.spec, flat=True)) if isinstance(op.spec, Linear) else op for op in ops)


def shared_width(keys: Keys) -> int:
    """The shared experts' width: given, or that of as many routed experts as are shared."""
    if keys.raw("shared_expert_intermediate_size") is not None and keys.given.get("n_shared_experts") is None:
        return keys.integer("shared_expert_intermediate_size")
    return keys.integer("n_shared_experts", default=1) * keys.integer(*EXPERT_WIDTH)


def dense_first(keys: Keys, layers: int) -> frozenset[int]:
    """Layers without experts: the first ones (`first_k_dense_replace`), and those that `moe_layer_freq` leaves out: a
    period whose first layer has experts, or a list with 1 for a layer with experts."""
    first = keys.integer("first_k_dense_replace", default=0, least=0)
    every = keys.raw("moe_layer_freq", default=1)
    if isinstance(every, list | tuple):
        if len(every) != layers:
            keys.refuse("moe_layer_freq", every, f"a period, or {layers} of 0 or 1, one for each layer")
        return frozenset(at for at, has in enumerate(every) if not has)
    step = keys.integer("moe_layer_freq", default=1)
    return frozenset(at for at in range(layers) if at < first or at % step)


AnyKind = TypeVar("AnyKind", bound=Hashable)
Kind = tuple[bool, int]  # whether a layer is without experts, and its window (tokens; 0: none)


def blocks(keys: Keys, kinds: Sequence[AnyKind], ops: Callable[[AnyKind], tuple[Op, ...]]) -> tuple[Block, ...]:
    """Equal layers together, with how many experts a token takes in them."""
    return tuple(_routing(keys, block) for block in grouped(kinds, ops, LAYERS))


def _routing(keys: Keys, block: Block) -> Block:
    """With how many experts a token takes, and without operations where what they run is not known."""
    top_k = next((op.spec.top_k for op in block.ops if isinstance(op.spec, ROUTED)), 0)
    if top_k and keys.number("router_jitter_noise"):
        block = uncovered(block, "noise on the router's input (router_jitter_noise) is not covered")
    if top_k and keys.flag("output_router_logits"):
        block = uncovered(block, "the load-balancing loss (output_router_logits) is not covered")
    return replace(block, top_k=top_k)


def uncovered(block: Block, why: str) -> Block:
    """The block's weights without its operations, and why."""
    return replace(block, ops=(), unknown=why)


def unique(weights: Iterable[Weight | None]) -> tuple[Weight, ...]:
    """Weights that there are, each once, in order."""
    return tuple(dict.fromkeys(weight for weight in weights if weight is not None))

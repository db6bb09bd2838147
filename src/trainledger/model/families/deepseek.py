"""DeepSeek V2 and V3, Kimi K2, and GLM-4.7-Flash: attention through latents (MLA), shared and routed experts, dense
first layers.

Sources: transformers (5.24.0) models/{deepseek_v2,deepseek_v3,glm4_moe_lite}/modeling_*.py;
that Kimi K2 is DeepSeek V3: models/kimi_k25/configuration_kimi_k25.py; the layers for further tokens: DeepSeek-V3's
README_WEIGHTS.md (Transformers leaves their weights out).
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.model.decoder import Trunk, act_of, decoder, leaving, pre_norm, weights_of
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.latent_attention import latent_attention, widths_of
from trainledger.model.parts import axis, gated, linear, norm
from trainledger.model.program import (
    Add,
    Block,
    Buffer,
    Experts,
    GroupRouter,
    Model,
    NormKind,
    Op,
    Pairs,
    Role,
    Rope,
    Rotary,
    Turn,
    Weight,
)

KIMI, THIRD, LITE = "kimi_k2", "deepseek_v3", "glm4_moe_lite"
KINDS, DENSE, SPARSE = "mlp_layer_types", "dense", "sparse"
HEADS = "grouped key heads (num_key_value_heads) are not what attention through latents makes, and its class fails"

FURTHER = "no class of Transformers runs the layers that predict further tokens"
NORMS = ("input_layernorm", "post_attention_layernorm")
GREEDY, GROUPED = "greedy", "group_limited_greedy"
PREFIX = moe.LAYERS


def build(keys: Keys) -> Model:
    """The model of these keys: `deepseek_v2`, `deepseek_v3`, `kimi_k2` or `glm4_moe_lite`."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    layers = keys.integer("num_hidden_layers")
    dense = _dense(keys, layers)
    _, top_k = moe.routed(keys)
    groups = keys.integer("n_group", default=1)
    keys.divides("n_group", groups, "n_routed_experts", keys.integer(*moe.EXPERTS))
    second = keys.text("model_type") == "deepseek_v2"
    unknown = _unknown(keys)
    numbers = [tuple(at for at in range(layers) if (at in dense) is without) for without in (True, False)]
    blocks = tuple(
        _block(_layer(keys, hidden, without), at, 0 if without else top_k, unknown)
        for without, at in zip((True, False), numbers, strict=True)
        if at
    )
    buffers = () if second else corrections(keys, blocks)
    rotary = Rotary(keys.integer("qk_rope_head_dim"), compound=second)
    family = keys.text("model_type")
    model = decoder(keys, THIRD if family == KIMI else family, blocks, rotary, Trunk(buffers=buffers))
    count = keys.integer("num_nextn_predict_layers", "num_mtp_layers", default=0, least=0)
    return replace(model, further=further(keys, model, _layer(keys, hidden, dense=False), count))


def _dense(keys: Keys, layers: int) -> frozenset[int]:
    """Layers without experts: as `mlp_layer_types` says of each, or the first ones."""
    given = keys.raw(KINDS)
    if keys.text("model_type") != LITE or given is None:
        return moe.dense_first(keys, layers)
    kinds = list(given) if isinstance(given, list | tuple) else []
    if len(kinds) != layers or any(kind not in (DENSE, SPARSE) for kind in kinds):
        keys.refuse(KINDS, given, f"{layers} of {DENSE!r} or {SPARSE!r} are needed, one for each layer")
    return frozenset(at for at, kind in enumerate(kinds) if kind == DENSE)


def _unknown(keys: Keys) -> str:
    """Why the activations of these keys are not covered; empty where they are."""
    heads = keys.integer("num_attention_heads")
    if keys.nullable("num_key_value_heads") is not None and keys.integer("num_key_value_heads") != heads:
        return HEADS
    if not keys.integer("n_shared_experts", default=0, least=0):
        return moe.NO_SHARED
    if keys.flag("output_router_logits"):
        return "the routers' logits among the outputs (output_router_logits) are not covered"
    return ""


def _block(ops: tuple[Op, ...], layers: tuple[int, ...], top_k: int, unknown: str) -> Block:
    return Block(PREFIX, () if unknown else ops, _weights(ops), layers, top_k, unknown)


def _weights(ops: tuple[Op, ...]) -> tuple[Weight, ...]:
    """The layer's weights in the order of its class: attention, feed-forward (experts first), the two norms."""
    every = weights_of(ops)
    norms = [weight for weight in every if weight.name.partition(".")[0] in NORMS]
    stacked = [weight for weight in every if weight.role is Role.EXPERT]
    attention = [weight for weight in every if weight.name.startswith("self_attn.")]
    return moe.unique((*attention, *stacked, *(weight for weight in every if weight not in norms), *norms))


def _layer(keys: Keys, hidden: Dims, dense: bool) -> tuple[Op, ...]:
    second = keys.text("model_type") == "deepseek_v2"
    widths = widths_of(keys)
    turn: Pairs | Rope = Pairs(Turn.COMPOUND if second else Turn.NEIGHBOURS)
    if not second and not keys.flag("rope_interleave", default=True):
        turn = Rope(widths.turned, widths.turned)
    attention = latent_attention(hidden, widths, turn, (keys.flag("attention_bias"), keys.number("attention_dropout")))
    bias = keys.flag("mlp_bias") if second else False
    if dense:
        return pre_norm(hidden, attention, gated("mlp", hidden, keys.integer("intermediate_size"), act_of(keys), bias))
    return pre_norm(hidden, attention, mixture(keys, hidden, bias))


def mixture(keys: Keys, hidden: Dims, bias: bool = False) -> tuple[Op, ...]:
    """Router, routed experts and the shared ones, which are one wide feed-forward that reads the same input."""
    router = _router(keys, hidden)
    gate_up, down = moe.expert_weights(keys, "mlp.experts", hidden, keys.integer(*moe.EXPERT_WIDTH))
    experts = Experts(router.top_k, gate_up, down, act_of(keys))
    made = ("router_logits", "scores", "chosen")
    ops = (
        Op("mlp.gate", router, ("x",), made, router.weight.dims[:1]),
        Op("mlp.experts", experts, ("x", *made[1:]), ("routed",), hidden),
    )
    if not keys.integer("n_shared_experts", default=0, least=0):
        return ops
    shared = gated("mlp.shared_experts", hidden, moe.shared_width(keys), act_of(keys), bias)
    return (
        *ops,
        *leaving(shared, "shared"),
        Op("mlp", Add(), ("routed", "shared"), ("x",), hidden, (*made, "routed", "shared")),
    )


def _router(keys: Keys, hidden: Dims) -> GroupRouter:
    """The router; its weight stays fp32 whatever the model's dtype."""
    weight = replace(moe.router_weight(keys, "mlp.gate", hidden), dtype=FP32)
    _, top_k = moe.routed(keys)
    if keys.text("model_type") != "deepseek_v2":
        bias = Buffer("mlp.gate.e_score_correction_bias", weight.dims[:1])
        groups, kept = keys.integer("n_group", default=1), keys.integer("topk_group", default=1)
        return GroupRouter(weight, top_k, groups, kept, keys.flag("norm_topk_prob", default=True), bias)
    grouped = keys.choice("topk_method", {GREEDY: False, GROUPED: True}, False)
    groups = keys.integer("n_group", default=1) if grouped else 0
    return GroupRouter(weight, top_k, groups, keys.integer("topk_group", default=1) if grouped else 0, False)


def corrections(keys: Keys, blocks: tuple[Block, ...]) -> tuple[Buffer, ...]:
    """V3's correction of each expert's score: a buffer per layer with experts."""
    dims = axis(Dim.EXPERTS, keys.integer(*moe.EXPERTS))
    layers = [layer for block in blocks if block.top_k for layer in block.layers]
    return tuple(Buffer(f"{PREFIX}.{layer}.mlp.gate.e_score_correction_bias", dims) for layer in layers)


def further(keys: Keys, model: Model, layer: tuple[Op, ...], count: int) -> tuple[Block, ...]:
    """So many layers that each predict one more token: two norms, a projection of both inputs, a `layer` with experts,
    and the model's own embedding and head."""
    if not count:
        return ()
    layers = sum(block.count for block in model.blocks)
    hidden = axis(Dim.HIDDEN, model.hidden.size)
    both = axis(Dim.HIDDEN, model.hidden.size + model.hidden.size)
    table = model.embeddings[0].dims
    own = (
        norm("enorm", hidden, NormKind.RMS).weight,
        norm("hnorm", hidden, NormKind.RMS).weight,
        linear("eh_proj", both, hidden).weight,
        norm("shared_head.norm", hidden, NormKind.RMS).weight,
        Weight("embed_tokens.weight", table, Role.EMBEDDING, tied=True),
        Weight("shared_head.head.weight", table, Role.HEAD, tied=True),
    )
    weights = moe.unique((*_weights(layer), *own))
    _, top_k = moe.routed(keys)
    return (Block(PREFIX, (), weights, tuple(range(layers, layers + count)), top_k, FURTHER),)

"""DeepSeek V2 and V3, and Kimi K2: attention through latents (MLA), shared and routed experts, dense first layers.

Sources: transformers (5.24.0) models/deepseek_v2/modeling_deepseek_v2.py, models/deepseek_v3/modeling_deepseek_v3.py;
the layers for further tokens: DeepSeek-V3's README_WEIGHTS.md (Transformers leaves their weights out).
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.decoder import Trunk, act_of, decoder, weights_of
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.parts import axis, gated, linear, norm
from trainledger.model.program import Block, Buffer, Linear, Model, Norm, NormKind, Role, Rotary, Weight

UNKNOWN = "multi-head latent attention (MLA) is counted in weights, its activations are not covered"
FURTHER = "no class of Transformers runs the layers that predict further tokens"
PREFIX = moe.LAYERS


def build(keys: Keys) -> Model:
    """The model of these keys: `deepseek_v2`, `deepseek_v3` or `kimi_k2`."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    layers = keys.integer("num_hidden_layers")
    dense = moe.dense_first(keys, layers)
    _, top_k = moe.routed(keys)
    groups = keys.integer("n_group", default=1)
    keys.divides("n_group", groups, "n_routed_experts", keys.integer(*moe.EXPERTS))
    second = keys.text("model_type") == "deepseek_v2"
    bias = keys.flag("mlp_bias") if second else False
    numbers = [tuple(at for at in range(layers) if (at in dense) is without) for without in (True, False)]
    blocks = tuple(
        Block(PREFIX, (), _layer(keys, hidden, without, bias), at, 0 if without else top_k, UNKNOWN)
        for without, at in zip((True, False), numbers, strict=True)
        if at
    )
    buffers = () if second else _corrections(keys, blocks)
    rotary = Rotary(keys.integer("qk_rope_head_dim"))
    model = decoder(keys, keys.text("model_type"), blocks, rotary, Trunk(buffers=buffers))
    return replace(model, further=_further(keys, model, layers))


def _attention(keys: Keys, hidden: Dims) -> tuple[Weight | None, ...]:
    """Weights of the latent attention: queries through `q_lora_rank` (or straight), keys and values through one."""
    name, heads = "self_attn", Axis(Dim.HEADS, keys.integer("num_attention_heads"))
    turned, straight = keys.integer("qk_rope_head_dim"), keys.integer("qk_nope_head_dim")
    value, rank = keys.integer("v_head_dim"), keys.integer("kv_lora_rank")
    bias = keys.flag("attention_bias")
    query = (heads, Axis(Dim.HEAD_DIM, straight + turned))
    found: list[Linear | Norm] = []
    if keys.nullable("q_lora_rank") is None:
        found.append(linear(f"{name}.q_proj", hidden, query))
    else:
        latent = axis(Dim.RANK, keys.integer("q_lora_rank"))
        found.append(linear(f"{name}.q_a_proj", hidden, latent, bias))
        found.append(norm(f"{name}.q_a_layernorm", latent, NormKind.RMS))
        found.append(linear(f"{name}.q_b_proj", latent, query))
    found.append(linear(f"{name}.kv_a_proj_with_mqa", hidden, axis(Dim.RANK, rank + turned), bias))
    found.append(norm(f"{name}.kv_a_layernorm", axis(Dim.RANK, rank), NormKind.RMS))
    found.append(linear(f"{name}.kv_b_proj", axis(Dim.RANK, rank), (heads, Axis(Dim.HEAD_DIM, straight + value))))
    found.append(linear(f"{name}.o_proj", (heads, Axis(Dim.HEAD_DIM, value)), hidden, bias))
    return tuple(weight for spec in found for weight in (spec.weight, spec.bias))


def _mlp(keys: Keys, hidden: Dims, bias: bool) -> tuple[Weight, ...]:
    """Weights of a layer's router, routed experts and the shared ones, which are one wide feed-forward."""
    width = keys.integer(*moe.EXPERT_WIDTH)
    router = moe.router_weight(keys, "mlp.gate", hidden)
    every = (*moe.expert_weights(keys, "mlp.experts", hidden, width), router)
    if not keys.integer("n_shared_experts", default=0, least=0):
        return every
    return (*every, *weights_of(gated("mlp.shared_experts", hidden, moe.shared_width(keys), act_of(keys), bias)))


def _layer(keys: Keys, hidden: Dims, dense: bool, bias: bool) -> tuple[Weight, ...]:
    names = ("input_layernorm", "post_attention_layernorm")
    norms = [norm(name, hidden, NormKind.RMS).weight for name in names]
    if dense:
        forward = weights_of(gated("mlp", hidden, keys.integer("intermediate_size"), act_of(keys), bias))
    else:
        forward = _mlp(keys, hidden, bias)
    return moe.unique((*_attention(keys, hidden), *forward, *norms))


def _corrections(keys: Keys, blocks: tuple[Block, ...]) -> tuple[Buffer, ...]:
    """V3's correction of each expert's score: a buffer per layer with experts."""
    dims = axis(Dim.EXPERTS, keys.integer(*moe.EXPERTS))
    layers = [layer for block in blocks if block.top_k for layer in block.layers]
    return tuple(Buffer(f"{PREFIX}.{layer}.mlp.gate.e_score_correction_bias", dims) for layer in layers)


def _further(keys: Keys, model: Model, layers: int) -> tuple[Block, ...]:
    """Layers that each predict one more token: two norms, a projection of both inputs, a layer with experts, and
    the model's own embedding and head."""
    count = keys.integer("num_nextn_predict_layers", "num_mtp_layers", default=0, least=0)
    if not count:
        return ()
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
    weights = moe.unique((*_layer(keys, hidden, dense=False, bias=False), *own))
    _, top_k = moe.routed(keys)
    return (Block(PREFIX, (), weights, tuple(range(layers, layers + count)), top_k, FURTHER),)

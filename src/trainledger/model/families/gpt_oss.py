"""gpt-oss: attention with sinks, alternately in a window, and experts with biases.

Source: transformers/models/gpt_oss/modeling_gpt_oss.py (5.24.0): GptOssDecoderLayer, GptOssExperts, GptOssTopKRouter.
"""

from __future__ import annotations

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import SLIDING, Trunk, decoder, joined, layer_kinds, normed
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import (
    BestRouter,
    ClampedExperts,
    Model,
    NormKind,
    Op,
    Pairs,
    Role,
    Rotary,
    SinkAttention,
    Turn,
    Weight,
)
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention, window_of

NORM = NormKind.RMS_LATE_CAST


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    layers = keys.integer("num_hidden_layers")
    heads = heads_of(keys, hidden[0].size)
    sinks = Weight("self_attn.sinks", heads.dims()[:1], Role.BIAS)
    bias, window = keys.flag("attention_bias"), window_of(keys)
    mlp = _experts(keys, hidden)

    def layer(kind: tuple[bool, int]) -> tuple[Op, ...]:
        plain = scores_of(keys, heads, kind[1])
        scores = SinkAttention(
            plain.heads, plain.kv_heads, plain.head, dropout=plain.dropout, window=kind[1], head_first=True, sinks=sinks
        )
        attention = SelfAttention(heads, scores, Pairs(Turn.HALVES), bias, bias)
        return (
            normed("input_layernorm", hidden, NORM),
            *self_attention(hidden, attention),
            *joined("attention residual", hidden),
            normed("post_attention_layernorm", hidden, NORM),
            *mlp,
            *joined("feed-forward residual", hidden),
        )

    # the first layer has a window, the next has none, and so on
    kinds = layer_kinds(keys, layers, lambda at: not at % len(("sliding", "full")))
    blocks = moe.blocks(keys, [(False, window if kind == SLIDING else 0) for kind in kinds], layer)
    return decoder(keys, "gpt_oss", blocks, Rotary(heads.width, half=True), Trunk(NORM))


def _experts(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """Router with a bias; experts stored [experts, in, out], gate and up interleaved, each with a bias. The scores are
    returned, too, and named where the layer names what its attention returned."""
    width = keys.integer(*moe.EXPERT_WIDTH, "intermediate_size")
    _, top_k = moe.routed(keys)
    gate_up, down = moe.transposed(keys, "mlp.experts", hidden, width)
    weight = moe.router_weight(keys, "mlp.router", hidden)
    count = weight.dims[:1]
    router = BestRouter(weight, Weight("mlp.router.bias", count, Role.ROUTER), top_k)
    experts = ClampedExperts(
        top_k,
        gate_up,
        Weight("mlp.experts.gate_up_proj_bias", (*count, *gate_up.dims[-1:]), Role.EXPERT),
        down,
        Weight("mlp.experts.down_proj_bias", (*count, *hidden), Role.EXPERT),
    )
    made = ("router_logits", "scores", "chosen")
    return (
        Op("mlp.router", router, ("x",), made, count),
        Op("mlp.experts", experts, ("x", *made[1:]), ("x",), hidden, (made[0], made[2], "attention weights")),
    )

"""Llama 4's text model: experts in every n-th layer beside a shared one, dense layers between them.

Source: transformers/models/llama4/modeling_llama4.py (5.24.0): Llama4TextDecoderLayer, Llama4TextMoe.
"""

from __future__ import annotations

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import Trunk, act_of, decoder, weights_of
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.parts import axis, gated, norm
from trainledger.model.program import Block, Model, NormKind, Rotary, Weight
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention

UNKNOWN = "chunked attention and experts that see every token are counted in weights, their activations are not covered"


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    layers = keys.integer("num_hidden_layers")
    _, top_k = moe.routed(keys)
    heads = heads_of(keys, hidden[0].size)
    bias = keys.flag("attention_bias")
    attention = weights_of(self_attention(hidden, SelfAttention(heads, scores_of(keys, heads), None, bias, bias)))
    norms = [norm(name, hidden, NormKind.RMS).weight for name in ("input_layernorm", "post_attention_layernorm")]
    chosen = _moe_layers(keys, layers)
    blocks = []
    for has in (True, False):
        weights = moe.unique((*attention, *(_experts(keys, hidden) if has else _dense(keys, hidden)), *norms))
        at = tuple(at for at in range(layers) if (at in chosen) is has)
        blocks.append(Block(moe.LAYERS, (), weights, at, top_k if has else 0, UNKNOWN))
    found = tuple(sorted((block for block in blocks if block.layers), key=lambda block: block.layers))
    return decoder(keys, "llama4", found, Rotary(heads.width), Trunk())


def _moe_layers(keys: Keys, layers: int) -> frozenset[int]:
    """Layers with experts: those listed (`moe_layers`), else the last of every `interleave_moe_layer_step`."""
    if keys.raw("moe_layers") is not None:
        return frozenset(keys.indices("moe_layers"))
    step = keys.integer("interleave_moe_layer_step")
    return frozenset(range(step - 1, layers, step))


def _dense(keys: Keys, hidden: Dims) -> tuple[Weight, ...]:
    return weights_of(gated("feed_forward", hidden, keys.integer("intermediate_size_mlp"), act_of(keys)))


def _experts(keys: Keys, hidden: Dims) -> tuple[Weight, ...]:
    """Router, experts stored [experts, in, out], and a shared expert of the same width."""
    width = keys.integer(*moe.EXPERT_WIDTH, "intermediate_size")
    return (
        *moe.transposed(keys, "feed_forward.experts", hidden, width),
        moe.router_weight(keys, "feed_forward.router", hidden),
        *weights_of(gated("feed_forward.shared_expert", hidden, width, act_of(keys))),
    )

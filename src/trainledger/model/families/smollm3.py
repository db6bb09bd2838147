"""SmolLM 3: Llama with layers that have no positions, and on request a window on those.

Source: transformers/models/smollm3/modeling_smollm3.py (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import (
    SLIDING,
    Trunk,
    act_of,
    decoder,
    every_but,
    feed_forward,
    grouped,
    layer_kinds,
    pre_norm,
)
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Model, Op, Rope, Rotary
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention, window_of


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    bias = keys.flag("attention_bias")
    mlp = feed_forward(keys, hidden, act_of(keys), keys.flag("mlp_bias"))

    def layer(kind: tuple[bool, int]) -> tuple[Op, ...]:
        turned, window = kind
        rope = Rope(heads.width, heads.width) if turned else None
        attention = SelfAttention(heads, scores_of(keys, heads, window), rope, bias, bias)
        return pre_norm(hidden, self_attention(hidden, attention), mlp)

    return decoder(keys, "smollm3", grouped(_kinds(keys), layer), Rotary(heads.width), Trunk())


def _kinds(keys: Keys) -> list[tuple[bool, int]]:
    """For each layer, whether it turns queries and keys, and its window."""
    layers = keys.integer("num_hidden_layers")
    turned = [bool(flag) for flag in keys.indices("no_rope_layers")]
    if not turned:
        turns = every_but(keys.integer("no_rope_layer_interval"))
        turned = [turns(at) for at in range(layers)]
    elif len(turned) < layers:
        keys.refuse("no_rope_layers", len(turned), f"one entry for each of {layers} layers is needed")
        turned = [True for _ in range(layers)]
    window = window_of(keys) if keys.flag("use_sliding_window") else 0
    kinds = layer_kinds(keys, layers, lambda at: window > 0 and not turned[at])
    return [(turned[at], window if kinds[at] == SLIDING else 0) for at in range(layers)]

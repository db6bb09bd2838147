"""Cohere's Command models: one norm for attention and feed-forward side by side, scaled logits.

Sources: transformers/models/cohere/modeling_cohere.py and cohere2/modeling_cohere2.py (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import (
    SLIDING,
    Trunk,
    act_of,
    decoder,
    every_but,
    feed_forward,
    grouped,
    layer_kinds,
    leaving,
    normed,
)
from trainledger.model.keys import Keys
from trainledger.model.parts import Heads, axis
from trainledger.model.program import Add, Model, NormKind, Op, Rope, Rotary, Scale
from trainledger.model.self_attention import (
    HeadNorm,
    Place,
    SelfAttention,
    heads_of,
    scores_of,
    self_attention,
    window_of,
)

NORM = NormKind.LAYER_MANUAL


def build(keys: Keys) -> Model:
    """The model of these keys. Layers of the second generation without a window have no positions."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    second = keys.text("model_type") == "cohere2"

    def layer(window: int) -> tuple[Op, ...]:
        return _layer(keys, hidden, heads, window, not second or window > 0)

    blocks = grouped(_windows(keys, second), layer)
    vocab = axis(Dim.VOCAB, keys.integer("vocab_size"))
    headed = Op("logit scale", Scale(), ("logits",), ("logits",), vocab)
    return decoder(keys, keys.text("model_type"), blocks, Rotary(heads.width), Trunk(NORM, headed=(headed,)))


def _windows(keys: Keys, second: bool) -> list[int]:
    layers = keys.integer("num_hidden_layers")
    if not second:
        return [0] * layers
    window = window_of(keys)
    kinds = layer_kinds(keys, layers, every_but(keys.integer("sliding_window_pattern")))
    return [window if kind == SLIDING else 0 for kind in kinds]


def _layer(keys: Keys, hidden: Dims, heads: Heads, window: int, positions: bool) -> tuple[Op, ...]:
    bias = keys.flag("attention_bias")
    rope = Rope(heads.width, heads.width, interleaved=True, upcast=True, back=True) if positions else None
    norm = HeadNorm(NORM, Place.FULL) if keys.flag("use_qk_norm") else None
    attention = SelfAttention(heads, scores_of(keys, heads, window), rope, bias, bias, norm, out="attention")
    return (
        normed("input_layernorm", hidden, NORM),
        *self_attention(hidden, attention),
        *leaving(feed_forward(keys, hidden, act_of(keys)), "fed"),
        Op("attention residual", Add(), ("h", "attention"), ("sum",), hidden),
        Op("feed-forward residual", Add(), ("sum", "fed"), ("h",), hidden, ("sum", "attention", "fed", "x")),
    )

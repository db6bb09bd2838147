"""Qwen 2 (biases on q, k and v) and Qwen 3 (a norm of queries and keys by head); a sliding window on some layers.

Sources: transformers/models/qwen2/modeling_qwen2.py and qwen3/modeling_qwen3.py (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import SLIDING, Trunk, act_of, decoder, feed_forward, grouped, layer_kinds, pre_norm
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Model, NormKind, Op, Rope, Rotary
from trainledger.model.self_attention import (
    HeadNorm,
    Place,
    SelfAttention,
    heads_of,
    scores_of,
    self_attention,
    window_of,
)


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    family = keys.text("model_type")
    third = family == "qwen3"
    bias = keys.flag("attention_bias") if third else True
    norm = HeadNorm(NormKind.RMS, Place.EACH) if third else None
    mlp = feed_forward(keys, hidden, act_of(keys))

    def layer(window: int) -> tuple[Op, ...]:
        scores, rope = scores_of(keys, heads, window), Rope(heads.width, heads.width)
        attention = SelfAttention(heads, scores, rope, bias, bias and third, norm)
        return pre_norm(hidden, self_attention(hidden, attention), mlp)

    return decoder(keys, family, grouped(_windows(keys), layer), Rotary(heads.width), Trunk())


def _windows(keys: Keys) -> list[int]:
    """Each layer's window: none unless `use_sliding_window`, then by default from layer `max_window_layers` on."""
    window = window_of(keys) if keys.flag("use_sliding_window") else 0
    first = keys.integer("max_window_layers", least=0)
    kinds = layer_kinds(keys, keys.integer("num_hidden_layers"), lambda at: window > 0 and at >= first)
    return [window if kind == SLIDING else 0 for kind in kinds]

"""Qwen 2 (biases on q, k and v) and Qwen 3 (a norm of queries and keys by head); a sliding window on some layers.

The language models of Qwen 2 VL to 3 VL have the same layers; their rotary tables count positions in three
ways, and before 3 they project queries, keys and values before they see any by heads.

Sources: transformers/models/{qwen2,qwen3,qwen2_vl,qwen2_5_vl,qwen3_vl}/modeling_*.py (5.24.0).
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

# the language models of multimodal types, whose layers are those of another
BASES = {
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl": "qwen2", "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
}  # fmt: skip


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    family = BASES.get(keys.text("model_type"), keys.text("model_type"))
    third, seeing = family == "qwen3", keys.text("model_type") in BASES
    bias = keys.flag("attention_bias") if third else True
    norm = HeadNorm(NormKind.RMS, Place.EACH) if third else None
    mlp = feed_forward(keys, hidden, act_of(keys))

    def layer(window: int) -> tuple[Op, ...]:
        scores, rope = scores_of(keys, heads, window), Rope(heads.width, heads.width)
        attention = SelfAttention(heads, scores, rope, bias, bias and third, norm, together=seeing and not third)
        return pre_norm(hidden, self_attention(hidden, attention), mlp)

    return decoder(keys, family, grouped(_windows(keys), layer), Rotary(heads.width), Trunk())


def _windows(keys: Keys) -> list[int]:
    """Each layer's window: none unless `use_sliding_window`, then by default from layer `max_window_layers` on."""
    window = window_of(keys) if keys.flag("use_sliding_window") else 0
    first = keys.integer("max_window_layers", least=0)
    kinds = layer_kinds(keys, keys.integer("num_hidden_layers"), lambda at: window > 0 and at >= first)
    return [window if kind == SLIDING else 0 for kind in kinds]

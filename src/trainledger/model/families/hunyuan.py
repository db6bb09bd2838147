"""Hunyuan: Llama whose queries and keys are normalised by head after they turn.

Source: transformers/models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py (5.24.0): HunYuanDenseV1Attention.
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import Trunk, act_of, decoder, feed_forward, grouped, pre_norm
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Model, NormKind, Rope, Rotary
from trainledger.model.self_attention import HeadNorm, Place, SelfAttention, heads_of, scores_of, self_attention

NAMES = ("query_layernorm", "key_layernorm")


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    bias, rope = keys.flag("attention_bias"), Rope(heads.width, heads.width)
    norm = HeadNorm(NormKind.RMS, Place.AFTER, NAMES)
    attention = self_attention(hidden, SelfAttention(heads, scores_of(keys, heads), rope, bias, bias, norm))
    ops = pre_norm(hidden, attention, feed_forward(keys, hidden, act_of(keys)))
    blocks = grouped([0] * keys.integer("num_hidden_layers"), lambda _: ops)
    return decoder(keys, "hunyuan_v1_dense", blocks, Rotary(heads.width), Trunk())

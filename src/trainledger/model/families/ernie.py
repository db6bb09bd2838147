"""Ernie 4.5: Llama whose queries and keys turn in pairs of neighbours, by tables of fp32.

Source: transformers/models/ernie4_5/modeling_ernie4_5.py (5.24.0): Ernie4_5Attention, apply_rotary_pos_emb.
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import Trunk, act_of, decoder, feed_forward, grouped, pre_norm
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Model, Rope, Rotary
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    bias = keys.flag("use_bias")
    rope = Rope(heads.width, heads.width, interleaved=True, spread=True, late=True, back=True)
    attention = self_attention(hidden, SelfAttention(heads, scores_of(keys, heads), rope, bias, bias))
    ops = pre_norm(hidden, attention, feed_forward(keys, hidden, act_of(keys), bias))
    blocks = grouped([0] * keys.integer("num_hidden_layers"), lambda _: ops)
    return decoder(keys, "ernie4_5", blocks, Rotary(heads.width, high=True), Trunk())

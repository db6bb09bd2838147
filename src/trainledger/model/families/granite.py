"""Granite: Llama with a multiplier on the embeddings, on each branch and on the logits.

Source: transformers/models/granite/modeling_granite.py (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import Trunk, act_of, decoder, feed_forward, grouped, pre_norm
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Model, Op, Rope, Rotary, Scale
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention


def build(keys: Keys) -> Model:
    """The model of these keys. The multipliers run at any value, 1 included."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    bias = keys.flag("attention_bias")
    attention = SelfAttention(heads, scores_of(keys, heads), Rope(heads.width, heads.width), bias, bias)
    mlp = feed_forward(keys, hidden, act_of(keys), keys.flag("mlp_bias"))
    ops = pre_norm(hidden, self_attention(hidden, attention), mlp, Scale())
    blocks = grouped([0] * keys.integer("num_hidden_layers"), lambda _: ops)
    embedded = Op("embedding multiplier", Scale(), ("h",), ("h",), hidden)
    vocab = axis(Dim.VOCAB, keys.integer("vocab_size"))
    headed = Op("logits scaling", Scale(), ("logits",), ("logits",), vocab)
    return decoder(keys, "granite", blocks, Rotary(heads.width), Trunk(embedded=(embedded,), headed=(headed,)))

"""Mistral: Llama with a sliding window over all layers.

Source: transformers/models/mistral/modeling_mistral.py (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import Trunk, act_of, decoder, feed_forward, grouped, pre_norm
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Model, Rope, Rotary
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention, window_of


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    attention = SelfAttention(heads, scores_of(keys, heads, window_of(keys)), Rope(heads.width, heads.width))
    ops = pre_norm(hidden, self_attention(hidden, attention), feed_forward(keys, hidden, act_of(keys)))
    blocks = grouped([0] * keys.integer("num_hidden_layers"), lambda _: ops)
    return decoder(keys, "mistral", blocks, Rotary(heads.width), Trunk())

"""Mixtral: Llama's attention, every feed-forward a choice of experts.

Source: transformers/models/mixtral/modeling_mixtral.py (5.24.0): MixtralDecoderLayer, MixtralTopKRouter.
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import Trunk, decoder, pre_norm
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Model, Rope, Rotary
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention, window_of


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    width = keys.integer(*moe.EXPERT_WIDTH, "intermediate_size")
    attention = SelfAttention(heads, scores_of(keys, heads, window_of(keys)), Rope(heads.width, heads.width))
    mlp = moe.sparse(keys, hidden, width, normalise=True, upcast=True)
    ops = pre_norm(hidden, self_attention(hidden, attention), mlp)
    blocks = moe.blocks(keys, [(False, 0)] * keys.integer("num_hidden_layers"), lambda _: ops)
    return decoder(keys, "mixtral", blocks, Rotary(heads.width), Trunk())

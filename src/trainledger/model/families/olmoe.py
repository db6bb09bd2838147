"""OLMoE: every feed-forward a choice of experts, queries and keys normed over all heads at once.

Source: transformers/models/olmoe/modeling_olmoe.py (5.24.0): OlmoeDecoderLayer, OlmoeAttention.
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import Trunk, decoder, pre_norm
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Model, NormKind, Rope, Rotary
from trainledger.model.self_attention import HeadNorm, Place, SelfAttention, heads_of, scores_of, self_attention

CLIPPED = "clipping of queries, keys and values (clip_qkv) is not covered"


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    bias = keys.flag("attention_bias")
    norm = HeadNorm(NormKind.RMS, Place.WIDE)
    attention = SelfAttention(heads, scores_of(keys, heads), Rope(heads.width, heads.width), bias, bias, norm)
    width = keys.integer(*moe.EXPERT_WIDTH, "intermediate_size")
    mlp = moe.sparse(keys, hidden, width, keys.flag("norm_topk_prob"))
    ops = pre_norm(hidden, self_attention(hidden, attention), mlp)
    blocks = moe.blocks(keys, [(False, 0)] * keys.integer("num_hidden_layers"), lambda _: ops)
    if keys.raw("clip_qkv") is not None:
        blocks = tuple(moe.uncovered(block, CLIPPED) for block in blocks)
    return decoder(keys, "olmoe", blocks, Rotary(heads.width), Trunk())

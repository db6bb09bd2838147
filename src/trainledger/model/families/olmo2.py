"""OLMo 2: each branch's result is normalised, not its input; queries and keys are over all heads at once.

Source: transformers/models/olmo2/modeling_olmo2.py (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import Trunk, act_of, decoder, feed_forward, grouped, normed, reading
from trainledger.model.keys import Keys
from trainledger.model.parts import axis, residual
from trainledger.model.program import Model, NormKind, Rope, Rotary
from trainledger.model.self_attention import HeadNorm, Place, SelfAttention, heads_of, scores_of, self_attention

NORM = NormKind.RMS_LATE_CAST


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    bias = keys.flag("attention_bias")
    rope = Rope(heads.width, heads.width, back=True)
    norm = HeadNorm(NORM, Place.WIDE)
    attention = SelfAttention(heads, scores_of(keys, heads), rope, bias, bias, norm)
    ops = (
        *reading(self_attention(hidden, attention), "h"),
        normed("post_attention_layernorm", hidden, NORM, "x"),
        residual("attention residual", hidden),
        *reading(feed_forward(keys, hidden, act_of(keys)), "h"),
        normed("post_feedforward_layernorm", hidden, NORM, "x"),
        residual("feed-forward residual", hidden),
    )
    blocks = grouped([0] * keys.integer("num_hidden_layers"), lambda _: ops)
    return decoder(keys, "olmo2", blocks, Rotary(heads.width, high=True), Trunk(NORM))

"""GLM-4: part of each head turns, in pairs of neighbours; gate and up in one projection; more norms in `glm4`.

Sources: transformers/models/glm/modeling_glm.py and glm4/modeling_glm4.py (5.24.0).
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import Trunk, act_of, decoder, fused_gated, grouped, normed, pre_norm
from trainledger.model.keys import Keys
from trainledger.model.parts import axis, residual
from trainledger.model.program import Join, Model, NormKind, Op, Rope, Rotary
from trainledger.model.self_attention import SelfAttention, heads_of, rotary_width, scores_of, self_attention


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    family = keys.text("model_type")
    rotary = rotary_width(keys, heads.width)
    rope = Rope(rotary, heads.width, interleaved=True, spread=True, join=Join.LAST)
    spec = SelfAttention(heads, replace(scores_of(keys, heads), head_first=True), rope, keys.flag("attention_bias"))
    attention = self_attention(hidden, spec)
    mlp = fused_gated("mlp", hidden, keys.integer("intermediate_size"), act_of(keys))
    ops = _four_norms(hidden, attention, mlp) if family == "glm4" else pre_norm(hidden, attention, mlp)
    blocks = grouped([0] * keys.integer("num_hidden_layers"), lambda _: ops)
    return decoder(keys, family, blocks, Rotary(rotary), Trunk())


def _four_norms(hidden: Dims, attention: tuple[Op, ...], mlp: tuple[Op, ...]) -> tuple[Op, ...]:
    return (
        normed("input_layernorm", hidden, NormKind.RMS),
        *attention,
        normed("post_self_attn_layernorm", hidden, NormKind.RMS, "x"),
        residual("attention residual", hidden),
        normed("post_attention_layernorm", hidden, NormKind.RMS),
        *mlp,
        normed("post_mlp_layernorm", hidden, NormKind.RMS, "x"),
        residual("feed-forward residual", hidden),
    )

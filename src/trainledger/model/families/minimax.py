"""MiniMax M2: queries and keys normed over all heads at once, part of each head turns, and experts chosen by sigmoids.

Source: transformers/models/minimax_m2/modeling_minimax_m2.py (5.24.0): MiniMaxM2Attention, MiniMaxM2SparseMoeBlock.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import Trunk, act_of, decoder, pre_norm
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Buffer, Experts, GroupRouter, Join, Model, NormKind, Op, Rope, Rotary
from trainledger.model.self_attention import (
    HeadNorm,
    Place,
    SelfAttention,
    heads_of,
    rotary_width,
    scores_of,
    self_attention,
)

CORRECTION = "mlp.e_score_correction_bias"


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    layers, heads = keys.integer("num_hidden_layers"), heads_of(keys, hidden[0].size)
    rotary = _rotary(keys, heads.width)
    rope = Rope(rotary, heads.width, join=Join.LAST)
    scores = replace(scores_of(keys, heads), head_first=True)
    attention = self_attention(hidden, SelfAttention(heads, scores, rope, norm=HeadNorm(NormKind.RMS, Place.WIDE)))
    experts = _experts(keys, hidden)
    blocks = moe.blocks(keys, [(False, 0)] * layers, lambda _: pre_norm(hidden, attention, experts))
    count = axis(Dim.EXPERTS, keys.integer(*moe.EXPERTS))
    buffers = tuple(Buffer(f"{moe.LAYERS}.{at}.{CORRECTION}", count) for at in range(layers))
    return decoder(keys, "minimax_m2", blocks, Rotary(rotary), Trunk(buffers=buffers))


def _experts(keys: Keys, hidden: Dims) -> tuple[Op, Op]:
    _, top_k = moe.routed(keys)
    width = keys.integer(*moe.EXPERT_WIDTH, "intermediate_size")
    gate_up, down = moe.expert_weights(keys, "mlp.experts", hidden, width)
    weight = moe.router_weight(keys, "mlp.gate", hidden)
    router = GroupRouter(weight, top_k, 0, 0, True, Buffer(CORRECTION, weight.dims[:1]), high=False)
    made = ("router_logits", "scores", "chosen")
    return (
        Op("mlp.gate", router, ("x",), made, weight.dims[:1]),
        Op("mlp.experts", Experts(top_k, gate_up, down, act_of(keys)), ("x", *made[1:]), ("x",), hidden, made),
    )


def _rotary(keys: Keys, width: int) -> int:
    """How many elements of a head turn (`rotary_dim`, or a share in the rotary parameters)."""
    return rotary_width(keys, width) if keys.raw("rotary_dim") is None else keys.integer("rotary_dim")

"""Phi 3 and 4: q, k and v in one projection, gate and up in another, dropout on each branch.

Source: transformers/models/phi3/modeling_phi3.py (5.24.0).
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import Trunk, act_of, decoder, fused_gated, grouped, pre_norm
from trainledger.model.keys import Keys
from trainledger.model.parts import Heads, attend, axis, by_heads, linear
from trainledger.model.program import Attention, Dropout, Join, Model, Op, Rope, Rotary, Split
from trainledger.model.self_attention import heads_of, rotary_width, scores_of, window_of


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    rotary = rotary_width(keys, heads.width)
    attention = _attention(hidden, heads, replace(scores_of(keys, heads, window_of(keys)), head_first=True), rotary)
    mlp = fused_gated("mlp", hidden, keys.integer("intermediate_size"), act_of(keys))
    ops = pre_norm(hidden, attention, mlp, Dropout(keys.number("resid_pdrop")))
    blocks = grouped([0] * keys.integer("num_hidden_layers"), lambda _: ops)
    return decoder(keys, "phi3", blocks, Rotary(rotary), Trunk())


def _attention(hidden: Dims, heads: Heads, scores: Attention, rotary: int) -> tuple[Op, ...]:
    """q, k and v are slices of one projection, which lives as long as a slice of it does."""
    name, values = "self_attn", ("q", "k", "v")
    parts = tuple(heads.dims(kv=value != "q") for value in values)
    flat = axis(Dim.HEAD_DIM, sum(count.size * width.size for count, width in parts))
    out = linear(f"{name}.o_proj", heads.dims(), hidden)
    return (
        Op(f"{name}.qkv_proj", linear(f"{name}.qkv_proj", hidden, flat), ("x",), ("qkv",), flat),
        Op(f"{name}.qkv_proj", Split(parts), ("qkv",), values, flat),
        *(by_heads(name, dims, value, rotated=value != "v") for value, dims in zip(values, parts, strict=True)),
        Op(f"{name}.rotary", Rope(rotary, heads.width, join=Join.EACH), ("q", "k"), ("q", "k"), heads.dims()),
        attend(name, heads, scores),
        Op(f"{name}.o_proj", out, ("o",), ("x",), hidden, ("qkv", *values, "o")),
    )

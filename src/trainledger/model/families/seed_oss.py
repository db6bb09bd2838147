"""Seed-OSS: Llama with biases on queries, keys and values, and dropout of each branch's result.

Source: transformers/models/seed_oss/modeling_seed_oss.py (5.24.0): SeedOssAttention, SeedOssMLP.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Dim
from trainledger.model.decoder import Trunk, act_of, decoder, feed_forward, grouped, leaving, normed
from trainledger.model.keys import Keys
from trainledger.model.layered import dropped
from trainledger.model.parts import axis
from trainledger.model.program import Add, Model, NormKind, Op, Rope, Rotary
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention

BRANCHES = ("attention", "fed")  # what the two branches leave


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    bias, out_bias = keys.flag("attention_bias"), keys.flag("attention_out_bias")
    rope, (attended, fed) = Rope(heads.width, heads.width), BRANCHES
    spec = SelfAttention(heads, scores_of(keys, heads), rope, bias, out_bias, out=attended)
    mlp = leaving(feed_forward(keys, hidden, act_of(keys), keys.flag("mlp_bias")), fed)
    chance = keys.number("residual_dropout")
    ops = (
        normed("input_layernorm", hidden, NormKind.RMS),
        *_ending(self_attention(hidden, spec), "self_attn", chance),
        Op("attention residual", Add(), ("h", attended), ("h",), hidden, (attended,)),
        normed("post_attention_layernorm", hidden, NormKind.RMS),
        *_ending(mlp, "mlp", chance),
        Op("feed-forward residual", Add(), ("h", fed), ("h",), hidden, (fed,)),
    )
    blocks = grouped([0] * keys.integer("num_hidden_layers"), lambda _: ops)
    return decoder(keys, "seed_oss", blocks, Rotary(heads.width), Trunk())


def _ending(ops: tuple[Op, ...], name: str, chance: float) -> tuple[Op, ...]:
    """A branch that ends in dropout: what its last layer's code names, its input too, lives until then."""
    last = ops[-1]
    named = tuple(value for value in last.drop if value != "inner")
    ending = dropped(name, chance, last.outs[0], last.dims, (*named, "x"))
    return (*ops[:-1], replace(last, drop=tuple(value for value in last.drop if value not in named)), ending)

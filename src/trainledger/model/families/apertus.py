"""Apertus: Llama's layers with normed queries and keys, and a plain feed-forward whose activation function is trained.

Source: transformers/models/apertus/modeling_apertus.py (5.24.0): ApertusDecoderLayer, ApertusAttention, ApertusMLP.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.decoder import Trunk, act_of, decoder, grouped, normed, plain_feed_forward
from trainledger.model.keys import Keys
from trainledger.model.operations_curve import TrainedCurve
from trainledger.model.parts import axis, linear, residual
from trainledger.model.program import Buffer, Model, NormKind, Op, Role, Rope, Rotary, Weight
from trainledger.model.self_attention import HeadNorm, Place, SelfAttention, heads_of, scores_of, self_attention

XIELU = "xielu"
NUMBERS = ("beta", "eps")  # that each function keeps on the device


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    bias = keys.flag("attention_bias")
    norm = HeadNorm(NormKind.RMS, Place.LATE)
    attention = SelfAttention(heads, scores_of(keys, heads), Rope(heads.width, heads.width), bias, bias, norm)
    curved = keys.text("hidden_act") == XIELU
    ops = (
        normed("attention_layernorm", hidden, NormKind.RMS),
        *self_attention(hidden, attention),
        residual("attention residual", hidden),
        normed("feedforward_layernorm", hidden, NormKind.RMS),
        *(_curved(keys, hidden) if curved else plain_feed_forward(keys, hidden, act_of(keys))),
        residual("feed-forward residual", hidden),
    )
    layers = keys.integer("num_hidden_layers")
    names = (f"model.layers.{at}.mlp.act_fn.{name}" for at in range(layers if curved else 0) for name in NUMBERS)
    trunk = Trunk(buffers=tuple(Buffer(name, (Axis(Dim.ONE, 1),)) for name in names))
    return decoder(keys, "apertus", grouped([0] * layers, lambda _: ops), Rotary(heads.width), trunk)


def _curved(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """down(xielu(up(x))): reads `x`, leaves its result in `x`."""
    inner, single = axis(Dim.FFN, keys.integer("intermediate_size")), (Axis(Dim.ONE, 1),)
    curve = TrainedCurve(*(Weight(f"mlp.act_fn.alpha_{sign}", single, Role.NORM) for sign in ("p", "n")))
    up, down = linear("mlp.up_proj", hidden, inner), linear("mlp.down_proj", inner, hidden)
    return (
        Op("mlp.up_proj", up, ("x",), ("up",), inner),
        Op("mlp.act_fn", curve, ("up",), ("act",), inner, ("up",)),
        Op("mlp.down_proj", down, ("act",), ("x",), hidden, ("act",)),
    )

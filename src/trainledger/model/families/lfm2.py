"""LFM2: short gated convolutions over time in most layers, normed and turned attention in the others.

Source: transformers/models/lfm2/modeling_lfm2.py (5.24.0): Lfm2DecoderLayer, Lfm2ShortConv, Lfm2Attention, Lfm2MLP.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.model_types_rmsnorm import LFM2_WIDTH
from trainledger.model.decoder import FULL, Trunk, decoder, grouped, normed
from trainledger.model.keys import Keys
from trainledger.model.operations_linear import CausalConv, Transposed
from trainledger.model.parts import axis, linear
from trainledger.model.program import (
    Act,
    ActKind,
    Add,
    Model,
    Multiply,
    NormKind,
    Op,
    Role,
    Rope,
    Rotary,
    Split,
    Weight,
)
from trainledger.model.self_attention import HeadNorm, Place, SelfAttention, heads_of, scores_of, self_attention

CONV = "conv"
KINDS = (CONV, FULL)
NORMS = ("q_layernorm", "k_layernorm")
PARTS = ("b", "c", "value")


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    scores, rope = scores_of(keys, heads), Rope(heads.width, heads.width)
    norms = HeadNorm(NormKind.RMS, Place.EACH, NORMS)
    full = self_attention(hidden, SelfAttention(heads, scores, rope, norm=norms, last="out_proj"))
    mixers = {CONV: _short_conv(keys, hidden), FULL: full}
    mlp = _feed_forward(hidden, _width(keys))

    def layer(kind: str) -> tuple[Op, ...]:
        # the layer's input keeps a name of its own to the end
        return (
            normed("operator_norm", hidden, NormKind.RMS),
            *mixers[kind],
            Op("operator residual", Add(), ("x", "h"), ("sum",), hidden, ("x",)),
            normed("ffn_norm", hidden, NormKind.RMS, "sum"),
            *mlp,
            Op("feed-forward residual", Add(), ("sum", "x"), ("h",), hidden, ("x", "sum")),
        )

    trunk = Trunk(final="model.embedding_norm", tied=("tie_embedding", "tie_word_embeddings"))
    return decoder(keys, "lfm2", grouped(_kinds(keys), layer), Rotary(heads.width), trunk)


def _kinds(keys: Keys) -> list[str]:
    """Each layer's kind: `layer_types`, or attention in the layers of `full_attn_idxs` (by default in all)."""
    layers = keys.integer("num_hidden_layers")
    given = keys.nullable("layer_types")
    if given is None:
        every = keys.raw("full_attn_idxs") is None
        full = range(layers) if every else keys.indices("full_attn_idxs")
        return [FULL if at in full else CONV for at in range(layers)]
    kinds = list(given) if isinstance(given, list | tuple) else []
    if len(kinds) != layers or any(kind not in KINDS for kind in kinds):
        keys.refuse("layer_types", given, f"{layers} of {' or '.join(KINDS)} are needed, one for each layer")
        return [FULL] * layers
    return kinds


def _short_conv(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """Two gates and a value in one projection; the value times one gate goes through a convolution, times the other."""
    if keys.flag("conv_bias"):
        keys.refuse("conv_bias", True, "convolutions without biases are covered")
    past = Axis(Dim.SLOTS, keys.integer("conv_L_cache"))
    taps = Weight(f"{CONV}.conv.weight", (Axis(Dim.COLUMNS, hidden[0].size), Axis(Dim.ONE, 1), past), Role.MIXER)
    every = axis(Dim.COLUMNS, len(PARTS) * hidden[0].size)
    into, out = linear(f"{CONV}.in_proj", hidden, every), linear(f"{CONV}.out_proj", hidden, hidden)
    return (
        Op(f"{CONV}.in_proj", into, ("x",), ("bcx",), every),
        Op(CONV, Transposed(), ("bcx",), ("bcx",), every),
        Op(CONV, Split((hidden,) * len(PARTS), chunk=True), ("bcx",), PARTS, hidden),
        Op(CONV, Multiply(), ("b", "value"), ("mixed",), hidden),
        Op(CONV, CausalConv(taps, None), ("mixed",), ("mixed",), hidden),
        Op(CONV, Multiply(), ("c", "mixed"), ("y",), hidden),
        Op(f"{CONV}.out_proj", out, ("y",), ("x",), hidden, ("bcx", *PARTS, "mixed", "y")),
    )


def _width(keys: Keys) -> int:
    """The feed-forward's width: a share of what is given, times a factor, rounded up."""
    width = keys.integer("block_ff_dim", "intermediate_size")
    if not keys.flag("block_auto_adjust_ff_dim"):
        return width
    width = LFM2_WIDTH.parts * width // LFM2_WIDTH.of
    factor = keys.raw("block_ffn_dim_multiplier")
    if factor is None:
        return width
    step = keys.integer("block_multiple_of")
    return -(-int(keys.number("block_ffn_dim_multiplier") * width) // step) * step


def _feed_forward(hidden: Dims, width: int) -> tuple[Op, ...]:
    """w2(silu(w1(x)) * w3(x)), the function called by itself."""
    inner, prefix = axis(Dim.FFN, width), "feed_forward"
    gate, up, down = (
        linear(f"{prefix}.{name}", *((inner, hidden) if name == "w2" else (hidden, inner)))
        for name in ("w1", "w3", "w2")
    )
    return (
        Op(f"{prefix}.w1", gate, ("x",), ("gate",), inner),
        Op(prefix, Act(ActKind.SILU), ("gate",), ("act",), inner, ("gate",)),
        Op(f"{prefix}.w3", up, ("x",), ("up",), inner),
        Op(prefix, Multiply(), ("act", "up"), ("inner",), inner, ("act", "up")),
        Op(f"{prefix}.w2", down, ("inner",), ("x",), hidden, ("inner",)),
    )

"""LFM2: short gated convolutions over time in most layers, normed and turned attention in the others; with experts in
all but the first layers, too.

Sources: transformers/models/lfm2/modeling_lfm2.py: Lfm2DecoderLayer, Lfm2ShortConv, Lfm2Attention, Lfm2MLP;
models/lfm2_moe/modeling_lfm2_moe.py: Lfm2MoeSparseMoeBlock, Lfm2MoeTopKRouter (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.model_types_rmsnorm import LFM2_WIDTH
from trainledger.model.decoder import FULL, Trunk, decoder, normed
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.operations_linear import CausalConv, Transposed
from trainledger.model.parts import axis, linear
from trainledger.model.program import (
    Act,
    ActKind,
    Add,
    Buffer,
    Experts,
    LowRouter,
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

CONV, MLP, ROUTED = "conv", "feed_forward", "lfm2_moe"
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
    routed, layers = keys.text("model_type") == ROUTED, _kinds(keys)
    dense = keys.integer("num_dense_layers", least=0) if routed else len(layers)
    plain = _feed_forward(hidden, keys.integer("intermediate_size") if routed else _width(keys))

    def layer(kind: tuple[str, bool]) -> tuple[Op, ...]:
        # the layer's input keeps a name of its own to the end
        return (
            normed("operator_norm", hidden, NormKind.RMS),
            *mixers[kind[0]],
            Op("operator residual", Add(), ("x", "h"), ("sum",), hidden, ("x",)),
            normed("ffn_norm", hidden, NormKind.RMS, "sum"),
            *(_experts(keys, hidden) if kind[1] else plain),
            Op("feed-forward residual", Add(), ("sum", "x"), ("h",), hidden, ("x", "sum")),
        )

    corrected = range(dense, len(layers)) if routed and keys.flag("use_expert_bias") else ()
    trunk = Trunk(
        final="model.embedding_norm",
        tied=("tie_embedding", "tie_word_embeddings"),
        buffers=tuple(
            Buffer(f"model.layers.{at}.{MLP}.expert_bias", axis(Dim.EXPERTS, keys.integer(*moe.EXPERTS)))
            for at in corrected
        ),
    )
    blocks = moe.blocks(keys, [(kind, at >= dense) for at, kind in enumerate(layers)], layer)
    return decoder(keys, ROUTED if routed else "lfm2", blocks, Rotary(heads.width), trunk)


def _experts(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """Router and routed experts: reads `x`, leaves their sum in `x`."""
    _, top_k = moe.routed(keys)
    gate_up, down = moe.expert_weights(keys, f"{MLP}.experts", hidden, keys.integer(*moe.EXPERT_WIDTH))
    weight = moe.router_weight(keys, f"{MLP}.gate", hidden)
    router = LowRouter(weight, top_k, keys.flag("use_expert_bias"), keys.flag("norm_topk_prob"))
    made = ("router_logits", "scores", "chosen")
    return (
        Op(f"{MLP}.gate", router, ("x",), made, weight.dims[:1]),
        Op(f"{MLP}.experts", Experts(top_k, gate_up, down, ActKind.SILU), ("x", *made[1:]), ("x",), hidden, made),
    )


def _kinds(keys: Keys) -> list[str]:
    """Each layer's kind: `layer_types`, or attention in the layers of `full_attn_idxs` (by default in all)."""
    layers = keys.integer("num_hidden_layers")
    given = keys.nullable("layer_types")
    if given is None and keys.text("model_type") != ROUTED:
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
    inner, prefix = axis(Dim.FFN, width), MLP
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

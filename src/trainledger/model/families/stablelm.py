"""StableLM and Persimmon: part of each head turns, LayerNorm with biases; a gated or a plain feed-forward.

Sources: transformers/models/stablelm/modeling_stablelm.py and transformers/models/persimmon/modeling_persimmon.py
(5.24.0): StableLmDecoderLayer, StableLmAttention, PersimmonDecoderLayer, PersimmonAttention.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.decoder import leaving, reading, weights_of
from trainledger.model.keys import Keys
from trainledger.model.layered import (
    APART,
    Projections,
    dropped,
    language_head,
    layer_norm,
    looked_up,
    plain,
    summed,
    table,
    turned,
)
from trainledger.model.parts import ACTIVATIONS, Heads, axis, gated, linear
from trainledger.model.program import (
    ActKind,
    Attention,
    Block,
    Join,
    Linear,
    Model,
    Op,
    Role,
    Rotary,
    Split,
    View,
    Weight,
)
from trainledger.model.self_attention import heads_of, rotary_width

PERSIMMON = "persimmon"
QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
MLP = ("mlp.dense_h_to_4h", "mlp.act", "mlp.dense_4h_to_h")
NORMED = "each head has a LayerNorm of its own over queries and keys; no rule covers these yet"


def _scores(keys: Keys, heads: Heads) -> Attention:
    chance = keys.number("attention_dropout")
    return Attention(heads.query, heads.kv, heads.width, dropout=chance, head_first=True)


def _attention(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """StableLM's: reads `x`, leaves its result in `a`."""
    made = Projections(QKV, hidden, heads, keys.flag("use_qkv_bias")).ops()
    return (
        *(op for op in made if isinstance(op.spec, Linear)),  # all are projected before any is seen by heads
        *(op for op in made if isinstance(op.spec, View)),
        turned("self_attn.rotary", rotary_width(keys, heads.width), heads, Join.APART),
        Op("self_attn.attention", _scores(keys, heads), ("q", "k", "v"), ("a",), heads.dims()),
        Op("self_attn.o_proj", linear("self_attn.o_proj", heads.dims(), hidden), ("a",), ("a",), hidden,
           ("q", "k", "v", *APART)),
    )  # fmt: skip


def _layer(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """StableLM's layer, whose norm keeps its name to the end; its branches read one norm, or one after the other."""
    act = keys.choice("hidden_act", ACTIVATIONS, ActKind.SILU)
    parallel = keys.flag("use_parallel_residual")
    mlp = leaving(gated("mlp", hidden, keys.integer("intermediate_size"), act), "m")
    first = (layer_norm("input_layernorm", hidden, "h", "x"), *_attention(keys, heads, hidden))
    last = dropped("dropout", keys.number("hidden_dropout"), "m", hidden)
    if parallel:
        return (
            *first,
            *mlp,
            last,
            summed("attention residual", ("h", "a"), "s", hidden),
            summed("feed-forward residual", ("s", "m"), "h", hidden, ("s", "m", "x", "a")),
        )
    apart = reading(mlp, "n")
    return (
        *first,
        summed("attention residual", ("h", "a"), "h", hidden),
        layer_norm("post_attention_layernorm", hidden, "h", "n"),
        *apart[:-1],
        replace(apart[-1], drop=(*apart[-1].drop, "n")),
        last,
        summed("feed-forward residual", ("h", "m"), "h", hidden, ("m", "x", "a")),
    )


def _fused(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """Persimmon's attention: reads `x`, leaves its result in `y`."""
    each, name = heads.dims(), "self_attn.query_key_value"
    fused = (each[0], Axis(Dim.SLOTS, len(QKV)), each[1])
    dense = linear("self_attn.dense", each, hidden, bias=True)
    normed = ("q", "k") if keys.flag("qk_layernorm") else ()
    norms = (layer_norm(f"self_attn.{one}_layernorm", each[1:], one, one) for one in normed)
    return (
        Op(name, linear(name, hidden, fused, bias=True), ("x",), ("qkv",), fused),
        Op("self_attn.split", Split((each,) * len(QKV)), ("qkv",), ("q", "k", "v"), each),
        *(replace(op, dims=each) for op in norms),
        turned("self_attn.rotary", rotary_width(keys, heads.width), heads, Join.APART),
        Op("self_attn.attention", _scores(keys, heads), ("q", "k", "v"), ("y",), each),
        Op("self_attn.dense", dense, ("y",), ("y",), hidden, ("q", "k", "v", "qkv", "x", *APART)),
    )


def _persimmon(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """Persimmon's layer."""
    act = keys.choice("hidden_act", ACTIVATIONS, ActKind.RELU_SQUARED)
    *up, down = plain(MLP, hidden, keys.integer("intermediate_size"), act)
    return (
        layer_norm("input_layernorm", hidden, "h", "x"),
        *_fused(keys, heads, hidden),
        summed("attention residual", ("h", "y"), "h", hidden, ("y",)),
        layer_norm("post_attention_layernorm", hidden, "h", "x"),
        *up,
        replace(down, drop=("x",)),
        dropped("dropout", keys.number("hidden_dropout"), "y", hidden),
        summed("feed-forward residual", ("y", "h"), "h", hidden, ("y",)),
    )


def _head_norms(heads: Heads) -> tuple[Weight, ...]:
    width = heads.dims()[1:]
    counts = {"q": heads.query, "k": heads.kv}
    return tuple(
        Weight(f"self_attn.{one}_layernorm.norms.{at}.weight", width, Role.NORM)
        for one, count in counts.items()
        for at in range(count)
    )


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads, persimmon = heads_of(keys, hidden[0].size), keys.text("model_type") == PERSIMMON
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("model.embed_tokens", vocab, hidden)
    ops = (_persimmon if persimmon else _layer)(keys, heads, hidden)
    apart = keys.flag("qk_layernorm") and not persimmon
    weights = (*weights_of(ops), *(_head_norms(heads) if apart else ()))
    layers = tuple(range(keys.integer("num_hidden_layers")))
    final = layer_norm("model.final_layernorm" if persimmon else "model.norm", hidden, "h", "h")
    return Model(
        family=keys.text("model_type"),
        prologue=(looked_up("model.embed_tokens", words, "h"),),
        embeddings=(words,),
        blocks=(Block("model.layers", () if apart else ops, weights, layers, unknown=NORMED if apart else ""),),
        head=language_head((final,), words, "lm_head", keys.flag("tie_word_embeddings")),
        hidden=hidden[0],
        vocab=vocab.size,
        rotary=Rotary(rotary_width(keys, heads.width)),
    )

"""GPT-NeoX and Pythia: fused query, key and value by heads, rotary embedding of part of each head, parallel branches.

Source: transformers/models/gpt_neox/modeling_gpt_neox.py (5.24.0): GPTNeoXLayer, GPTNeoXAttention, GPTNeoXMLP.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.decoder import weights_of
from trainledger.model.keys import Keys
from trainledger.model.layered import (
    dropped,
    embedded,
    equal_heads,
    language_head,
    layer_norm,
    plain,
    summed,
    table,
    turned,
)
from trainledger.model.parts import ACTIVATIONS, Heads, axis, linear
from trainledger.model.program import (
    ActKind,
    Attention,
    Block,
    Handed,
    Join,
    Model,
    Op,
    Rotary,
    Split,
    View,
)
from trainledger.model.self_attention import rotary_width

QKV = ("q", "k", "v")
MLP = ("mlp.dense_h_to_4h", "mlp.act", "mlp.dense_4h_to_h")


def self_attention(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """Reads `x`, leaves its result in `a`; `x` ends with the module's call."""
    bias = keys.flag("attention_bias")
    each = heads.dims()
    fused = (each[0], Axis(Dim.SLOTS, len(QKV)), each[1])
    name = "attention.query_key_value"
    dense = linear("attention.dense", each, hidden, bias)
    chance = keys.number("attention_dropout")
    spec = Attention(heads.query, heads.kv, heads.width, dropout=chance, head_first=True)
    return (
        Op(name, linear(name, hidden, fused, bias), ("x",), ("qkv",), fused),
        Op(name, View(rotated=True), ("qkv",), ("qkv",), fused),
        Op("attention.chunk", Split((each,) * len(QKV), chunk=True), ("qkv",), QKV, each),
        turned("attention.rotary", rotary(keys, heads), heads, Join.LAST),
        Op("attention.attention", spec, QKV, ("a",), each),
        Op("attention.dense", dense, ("a",), ("a",), hidden, (*QKV, "qkv", "x")),
        dropped("post_attention_dropout", keys.number("hidden_dropout"), "a", hidden),
    )


def rotary(keys: Keys, heads: Heads) -> int:
    """How many elements of a head turn: `rotary_pct` stands for the factor unless the rotary parameters state it."""
    named = Keys({"partial_rotary_factor": keys.raw("rotary_pct"), **keys.given}, keys.preset)
    width = rotary_width(named, heads.width)
    keys.problems.extend(named.problems)
    return width


def layer(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """One layer: both branches read its input, or one after the other."""
    act = keys.choice("hidden_act", ACTIVATIONS, ActKind.GELU)
    attention = self_attention(keys, heads, hidden)
    *up, down = plain(MLP, hidden, keys.integer("intermediate_size"), act)
    mlp = (*up, Op(down.name, down.spec, down.ins, down.outs, down.dims, ("x",)))
    out = dropped("post_mlp_dropout", keys.number("hidden_dropout"), "y", hidden)
    first = layer_norm("input_layernorm", hidden, "h", "x")
    if keys.flag("use_parallel_residual"):
        return (
            first,
            *attention,
            layer_norm("post_attention_layernorm", hidden, "h", "x"),
            *mlp,
            out,
            summed("branches", ("y", "a"), "s", hidden),
            summed("residual", ("s", "h"), "h", hidden, ("s", "a", "y")),
        )
    return (
        first,
        *attention,
        summed("attention residual", ("a", "h"), "a", hidden),
        layer_norm("post_attention_layernorm", hidden, "a", "x"),
        *mlp,
        out,
        summed("feed-forward residual", ("y", "a"), "h", hidden, ("a", "y")),
    )


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = equal_heads(keys, "num_attention_heads", "hidden_size", hidden[0].size)
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("gpt_neox.embed_in", vocab, hidden)
    ops = layer(keys, heads, hidden)
    final = layer_norm("gpt_neox.final_layer_norm", hidden, "h", "h")
    return Model(
        family="gpt_neox",
        prologue=embedded("gpt_neox.embed_in", words, "gpt_neox.emb_dropout", keys.number("hidden_dropout")),
        embeddings=(words,),
        blocks=(Block("gpt_neox.layers", ops, weights_of(ops), tuple(range(keys.integer("num_hidden_layers")))),),
        head=language_head((final,), words, "lm_head", keys.flag("tie_word_embeddings")),
        handed=Handed(rebound=True),
        hidden=hidden[0],
        vocab=vocab.size,
        rotary=Rotary(rotary(keys, heads)),
    )

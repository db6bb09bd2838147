"""BLOOM: biases by distance, fused query, key and value by heads, an activation function of its own.

Source: transformers/models/bloom/modeling_bloom.py (5.24.0): BloomBlock, BloomAttention, BloomMLP, dropout_add.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.model_types_layernorm import WIDENING
from trainledger.model.decoder import weights_of
from trainledger.model.keys import Keys
from trainledger.model.layered import equal_heads, language_head, layer_norm, looked_up, summed, table
from trainledger.model.operations_written import NAMED
from trainledger.model.parts import Heads, axis, linear
from trainledger.model.program import (
    Act,
    ActKind,
    Alibi,
    Block,
    Dropout,
    Handed,
    Model,
    Op,
    Split,
    Written,
    WrittenAttention,
)

QKV = ("q", "k", "v")


def self_attention(keys: Keys, heads: Heads, hidden: Dims, residual: str) -> tuple[Op, ...]:
    """Reads `x`, leaves the sum with `residual` in `a`."""
    each, name = heads.dims(), "self_attention.query_key_value"
    fused = (each[0], Axis(Dim.SLOTS, len(QKV)), each[1])
    chance = keys.number("attention_dropout")
    spec = WrittenAttention(heads.query, heads.kv, heads.width, dropout=chance, how=Written.BLOOM)
    dense = linear("self_attention.dense", each, hidden, bias=True)
    return (
        Op(name, linear(name, hidden, fused, bias=True), ("x",), ("qkv",), fused),
        Op("self_attention.split", Split((each,) * len(QKV)), ("qkv",), QKV, each),
        Op("self_attention.attention", spec, QKV, ("o", *NAMED, *QKV), each),
        Op("self_attention.dense", dense, ("o",), ("y",), hidden),
        Op("self_attention.dropout", Dropout(keys.number("hidden_dropout")), ("y",), ("d",), hidden),
        summed("attention residual", (residual, "d"), "a", hidden, ("y", "d", "o", *QKV, "qkv", *NAMED)),
    )


def layer(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """One layer."""
    after = keys.flag("apply_residual_connection_post_layernorm")
    inner = axis(Dim.FFN, WIDENING.count * hidden[0].size)
    up, down = "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"
    return (
        layer_norm("input_layernorm", hidden, "h", "x"),
        *self_attention(keys, heads, hidden, "x" if after else "h"),
        layer_norm("post_attention_layernorm", hidden, "a", "x"),
        Op(up, linear(up, hidden, inner, bias=True), ("x",), ("u",), inner),
        Op("mlp.gelu_impl", Act(ActKind.GELU_BLOOM), ("u",), ("u",), inner),
        Op(down, linear(down, inner, hidden, bias=True), ("u",), ("y",), hidden),
        Op("mlp.dropout", Dropout(keys.number("hidden_dropout")), ("y",), ("d",), hidden),
        summed("feed-forward residual", ("x" if after else "a", "d"), "h", hidden, ("y", "d", "u", "x", "a")),
    )


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("n_embed", "hidden_size"))
    name = "num_attention_heads" if "num_attention_heads" in keys.given else "n_head"
    heads = equal_heads(keys, name, "hidden_size", hidden[0].size)
    if keys.integer("pretraining_tp") > 1 and keys.flag("slow_but_exact"):
        keys.refuse("slow_but_exact", True, "false is needed: the sum of slices has no rule")
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("transformer.word_embeddings", vocab, hidden)
    first = layer_norm("transformer.word_embeddings_layernorm", hidden, "inputs_embeds", "h")
    ops = layer(keys, heads, hidden)
    layers = tuple(range(keys.integer("n_layer", "num_hidden_layers")))
    return Model(
        family="bloom",
        handed=Handed(positions=False, numbered=False, alibi=Alibi(heads.query), rebound=True),
        prologue=(looked_up("transformer.word_embeddings", words, "inputs_embeds"), first),
        embeddings=(words, *weights_of((first,))),
        blocks=(Block("transformer.h", ops, weights_of(ops), layers),),
        head=language_head(
            (layer_norm("transformer.ln_f", hidden, "h", "h"),), words, "lm_head", keys.flag("tie_word_embeddings")
        ),
        hidden=hidden[0],
        vocab=vocab.size,
    )

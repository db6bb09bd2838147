"""StarCoder 2: grouped keys and rotary embedding as Llama's, LayerNorm and a plain feed-forward with biases.

Source: transformers/models/starcoder2/modeling_starcoder2.py (5.24.0): Starcoder2DecoderLayer, Starcoder2Attention.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.decoder import weights_of
from trainledger.model.keys import Keys
from trainledger.model.layered import (
    Projections,
    dropped,
    embedded,
    language_head,
    layer_norm,
    plain,
    summed,
    table,
    turned,
)
from trainledger.model.parts import ACTIVATIONS, Heads, axis, linear
from trainledger.model.program import ActKind, Attention, Block, Handed, Join, Model, Op, Rotary
from trainledger.model.self_attention import heads_of, window_of

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
MLP = ("mlp.c_fc", "mlp.act", "mlp.c_proj")


def self_attention(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """Reads `x`, leaves its result in `y`."""
    bias, chance = keys.flag("use_bias"), keys.number("attention_dropout")
    spec = Attention(heads.query, heads.kv, heads.width, dropout=chance, window=window_of(keys))
    out = linear("self_attn.o_proj", heads.dims(), hidden, bias)
    return (
        *Projections(QKV, hidden, heads, bias).ops(),
        turned("self_attn.rotary", heads.width, heads, Join.NONE),
        Op("self_attn.attention", spec, ("q", "k", "v"), ("y",), heads.dims()),
        Op("self_attn.o_proj", out, ("y",), ("y",), hidden),
        dropped("self_attn.residual_dropout", keys.number("residual_dropout"), "y", hidden, ("q", "k", "v", "x")),
    )


def layer(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """One layer."""
    act = keys.choice("hidden_act", ACTIVATIONS, ActKind.GELU_TANH)
    return (
        layer_norm("input_layernorm", hidden, "h", "x"),
        *self_attention(keys, heads, hidden),
        summed("attention residual", ("h", "y"), "h", hidden, ("y",)),
        layer_norm("post_attention_layernorm", hidden, "h", "x"),
        *plain(MLP, hidden, keys.integer("intermediate_size"), act, keys.flag("use_bias")),
        dropped("mlp.residual_dropout", keys.number("residual_dropout"), "y", hidden, ("x",)),
        summed("feed-forward residual", ("h", "y"), "h", hidden, ("y",)),
    )


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("model.embed_tokens", vocab, hidden)
    ops = layer(keys, heads, hidden)
    final = layer_norm("model.norm", hidden, "h", "h")
    return Model(
        family="starcoder2",
        prologue=embedded("model.embed_tokens", words, "model.embedding_dropout", keys.number("embedding_dropout")),
        embeddings=(words,),
        blocks=(Block("model.layers", ops, weights_of(ops), tuple(range(keys.integer("num_hidden_layers")))),),
        head=language_head((final,), words, "lm_head", keys.flag("tie_word_embeddings")),
        handed=Handed(rebound=True),
        hidden=hidden[0],
        vocab=vocab.size,
        rotary=Rotary(heads.width),
    )

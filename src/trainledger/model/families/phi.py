"""Phi 1 to 2: one norm before parallel attention and feed-forward, rotary embedding of part of each head.

Source: transformers/models/phi/modeling_phi.py (5.24.0): PhiDecoderLayer, PhiAttention, PhiMLP.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.decoder import weights_of
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
from trainledger.model.parts import ACTIVATIONS, Heads, axis, linear
from trainledger.model.program import ActKind, Attention, Block, Join, Model, Norm, NormKind, Op, Role, Rotary, Weight
from trainledger.model.self_attention import heads_of, rotary_width

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
MLP = ("mlp.fc1", "mlp.activation_fn", "mlp.fc2")


def _head_norm(value: str, dims: Dims) -> Op:
    name = f"self_attn.{value}_layernorm"
    width = dims[-1:]
    norm = Norm(NormKind.LAYER, Weight(f"{name}.weight", width, Role.NORM), Weight(f"{name}.bias", width, Role.NORM))
    return Op(name, norm, (value,), (value,), dims)


def self_attention(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """Reads `x`, leaves its result in `a`."""
    chance = keys.number("attention_dropout")
    spec = Attention(heads.query, heads.kv, heads.width, dropout=chance, head_first=True)
    rope = turned("self_attn.rotary", rotary_width(keys, heads.width), heads, Join.APART)
    normed = ("q", "k") if keys.flag("qk_layernorm") else ()
    out = linear("self_attn.dense", heads.dims(), hidden, bias=True)
    return (
        *Projections(QKV, hidden, heads).ops(),
        *(_head_norm(value, heads.dims(kv=value == "k")) for value in normed),
        rope,
        Op("self_attn.attention", spec, ("q", "k", "v"), ("a",), heads.dims()),
        Op("self_attn.dense", out, ("a",), ("a",), hidden, ("q", "k", "v", *APART)),
    )


def layer(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """One layer."""
    act = keys.choice("hidden_act", ACTIVATIONS, ActKind.GELU_NEW)
    chance = keys.number("resid_pdrop")
    return (
        layer_norm("input_layernorm", hidden, "h", "x"),
        *self_attention(keys, heads, hidden),
        dropped("resid_dropout", chance, "a", hidden),
        *plain(MLP, hidden, keys.integer("intermediate_size"), act),
        dropped("resid_dropout", chance, "y", hidden),
        summed("branches", ("a", "y"), "s", hidden),
        summed("residual", ("s", "h"), "h", hidden, ("s", "a", "y", "x")),
    )


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("model.embed_tokens", vocab, hidden)
    ops = layer(keys, heads, hidden)
    final = layer_norm("model.final_layernorm", hidden, "h", "h")
    return Model(
        family="phi",
        prologue=(
            looked_up("model.embed_tokens", words, "h"),
            dropped("model.embed_dropout", keys.number("embd_pdrop"), "h", hidden),
        ),
        embeddings=(words,),
        blocks=(Block("model.layers", ops, weights_of(ops), tuple(range(keys.integer("num_hidden_layers")))),),
        head=language_head((final,), words, "lm_head", keys.flag("tie_word_embeddings"), bias=True),
        hidden=hidden[0],
        vocab=vocab.size,
        rotary=Rotary(rotary_width(keys, heads.width)),
    )

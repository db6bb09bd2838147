"""Nemotron and the first OLMo: Llama's attention between LayerNorms of their own, a plain or a gated feed-forward.

Sources: transformers/models/nemotron/modeling_nemotron.py: NemotronDecoderLayer, NemotronLayerNorm1P;
transformers/models/olmo/modeling_olmo.py: OlmoDecoderLayer, OlmoLayerNorm (5.24.0).
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.decoder import act_of, feed_forward, plain_feed_forward, weights_of
from trainledger.model.keys import Keys
from trainledger.model.layered import language_head, looked_up, table
from trainledger.model.parts import ACTIVATIONS, Heads, axis, norm, residual
from trainledger.model.program import (
    ActKind,
    Block,
    Join,
    Model,
    Norm,
    NormKind,
    Op,
    Rope,
    Rotary,
)
from trainledger.model.self_attention import SelfAttention, heads_of, rotary_width, scores_of, self_attention

OLMO = "olmo"
CLAMPED = "queries, keys and values are clamped in place (clip_qkv); no rule covers that yet"


def _norm(name: str, hidden: Dims, olmo: bool) -> Op:
    spec = Norm(NormKind.LAYER_HIGH, None) if olmo else norm(name, hidden, NormKind.LAYER_ONE_PLUS, bias=True)
    return Op(name, spec, ("h",), ("x",), hidden)


def _feed_forward(keys: Keys, hidden: Dims, olmo: bool) -> tuple[Op, ...]:
    if olmo:
        return feed_forward(keys, hidden, act_of(keys))
    act = keys.choice("hidden_act", ACTIVATIONS, ActKind.RELU_SQUARED)
    return plain_feed_forward(keys, hidden, act, keys.flag("mlp_bias"))


def _attention(keys: Keys, heads: Heads, olmo: bool) -> SelfAttention:
    bias, scores = keys.flag("attention_bias"), scores_of(keys, heads)
    if olmo:
        return SelfAttention(heads, scores, Rope(heads.width, heads.width, back=True), bias, bias, together=True)
    rope = Rope(rotary_width(keys, heads.width), heads.width, join=Join.RETURNED)
    return SelfAttention(heads, replace(scores, head_first=True), rope, bias, bias)


def build(keys: Keys) -> Model:
    """The model of these keys."""
    olmo = keys.text("model_type") == OLMO
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("model.embed_tokens", vocab, hidden)
    ops = (
        _norm("input_layernorm", hidden, olmo),
        *self_attention(hidden, _attention(keys, heads, olmo)),
        residual("attention residual", hidden),
        _norm("post_attention_layernorm", hidden, olmo),
        *_feed_forward(keys, hidden, olmo),
        residual("feed-forward residual", hidden),
    )
    final = replace(_norm("model.norm", hidden, olmo), outs=("h",))
    clamped = olmo and keys.raw("clip_qkv") is not None
    layers = tuple(range(keys.integer("num_hidden_layers")))
    return Model(
        family=keys.text("model_type"),
        prologue=(looked_up("model.embed_tokens", words, "h"),),
        embeddings=(words,),
        blocks=(
            Block("model.layers", () if clamped else ops, weights_of(ops), layers, unknown=CLAMPED if clamped else ""),
        ),
        head=language_head((final,), words, "lm_head", keys.flag("tie_word_embeddings")),
        hidden=hidden[0],
        vocab=vocab.size,
        rotary=Rotary(heads.width if olmo else rotary_width(keys, heads.width), high=olmo),
    )

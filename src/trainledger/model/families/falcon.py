"""Falcon before its third generation: fused query, key and value, one or grouped key and value heads, ALiBi or rotary.

Source: transformers/models/falcon/modeling_falcon.py (5.24.0): FalconDecoderLayer, FalconAttention, FalconMLP.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.model_types_layernorm import FALCON_NORMS, WIDENING
from trainledger.model.decoder import weights_of
from trainledger.model.keys import Keys
from trainledger.model.layered import language_head, layer_norm, looked_up, summed, table
from trainledger.model.operations_written import NAMED
from trainledger.model.parts import ACTIVATIONS, Heads, axis, linear
from trainledger.model.program import (
    Act,
    ActKind,
    Add,
    Alibi,
    Block,
    Copy,
    Dropout,
    Handed,
    Linear,
    Model,
    Op,
    Repeat,
    Rope,
    Rotary,
    Split,
    Taken,
    Written,
    WrittenAttention,
)

LIKE_HEADS = "one key and value head for each query head, or one for all, in the new decoder architecture"


def heads_of(keys: Keys, hidden: int) -> Heads:
    """Query heads, and how many key and value heads the fused projection makes."""
    count = keys.integer("num_attention_heads")
    width = keys.divides("num_attention_heads", count, "hidden_size", hidden)
    if keys.flag("new_decoder_architecture"):
        grouped = keys.integer("num_kv_heads", default=count)
        keys.divides("num_kv_heads", grouped, "num_attention_heads", count)
        return Heads(count, grouped, width)
    return Heads(count, 1 if keys.flag("multi_query") else count, width)


def norms(keys: Keys) -> tuple[str, ...]:
    """The layer's norms: of attention and of the feed-forward, which may be one."""
    new, parallel = keys.flag("new_decoder_architecture"), keys.flag("parallel_attn")
    count = keys.integer("num_ln_in_parallel_attn", default=FALCON_NORMS.count if new else 1)
    if new and not parallel:
        keys.refuse("parallel_attn", False, "true is needed with new_decoder_architecture: the class runs no other")
    if parallel and not new and count != 1:
        keys.refuse("num_ln_in_parallel_attn", count, "1 is needed without new_decoder_architecture")
    if not parallel:
        return ("input_layernorm", "post_attention_layernorm")
    return ("ln_attn", "ln_mlp") if count == FALCON_NORMS.count else ("input_layernorm",)


def _written(name: str, source: Dims, target: Dims, bias: bool) -> Linear:
    """A FalconLinear."""
    return replace(linear(name, source, target, bias), apart=True)


def _parts(heads: Heads, grouped: bool) -> tuple[Op, ...]:
    """Queries, keys and values from `qkv`, which keeps its name."""
    name, each, shared = "self_attention.split", heads.dims(), heads.dims(kv=True)
    if not grouped and heads.kv == heads.query:
        return (Op(name, Split((each,) * len("qkv")), ("qkv",), ("q", "k", "v"), each),)
    queries = Op(name, Split((each,)), ("qkv",), ("q",), each)
    both = (Op(name, Taken(shared), ("qkv",), (value,), shared) for value in ("k", "v"))
    if not grouped:
        return (queries, *both)
    kept = tuple(replace(op, outs=(f"{op.outs[0]} of groups",)) for op in both)
    names = tuple(op.outs[0] for op in kept)
    return (
        queries,
        *kept,
        Op(name, Copy(), ("q",), ("q",), each),
        Op(name, Repeat(heads.query), names[:1], ("k",), each),
        Op(name, Repeat(heads.query), names[1:], ("v",), each, names),
    )


def self_attention(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """Reads `x`, leaves its result in `a`."""
    bias, grouped, biased = keys.flag("bias"), keys.flag("new_decoder_architecture"), keys.flag("alibi")
    lines = (Axis(Dim.HEADS, heads.query + heads.kv + heads.kv), Axis(Dim.HEAD_DIM, heads.width))
    name, each = "self_attention.query_key_value", heads.dims()
    spec = WrittenAttention(
        heads.query,
        heads.query if grouped else heads.kv,
        heads.width,
        dropout=keys.number("attention_dropout") if biased else 0,
        how=Written.FALCON_BIASED if biased else Written.FALCON,
        groups=heads.kv if grouped else 0,
    )
    turned = Op("self_attention.rotary", Rope(heads.width, heads.width), ("q", "k"), ("q", "k"), each)
    dense = _written("self_attention.dense", each, hidden, bias)
    return (
        Op(name, _written(name, hidden, lines, bias), ("x",), ("qkv",), lines),
        *_parts(heads, grouped),
        *(() if biased else (turned,)),
        Op("self_attention.attention", spec, ("q", "k", "v"), ("a", *NAMED), each),
        Op("self_attention.dense", dense, ("a",), ("a",), hidden, ("q", "k", "v", "qkv", *NAMED)),
    )


def feed_forward(keys: Keys, hidden: Dims, source: str) -> tuple[Op, ...]:
    """Reads `source`, leaves its result in `y`."""
    bias = keys.flag("bias")
    inner = axis(Dim.FFN, keys.integer("ffn_hidden_size", default=WIDENING.count * hidden[0].size))
    act = keys.choice("activation", ACTIVATIONS, ActKind.GELU)
    up, down = "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"
    return (
        Op(up, _written(up, hidden, inner, bias), (source,), ("y",), inner),
        Op("mlp.act", Act(act), ("y",), ("y",), inner),
        Op(down, _written(down, inner, hidden, bias), ("y",), ("y",), hidden),
    )


def layer(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """One layer: branches that read its input in parallel, or one after the other."""
    names, chance = norms(keys), keys.number("hidden_dropout")
    first, attention = layer_norm(names[0], hidden, "h", "x"), self_attention(keys, heads, hidden)
    if not keys.flag("parallel_attn"):
        return (
            first,
            *attention,
            Op("attention dropout", Dropout(keys.number("attention_dropout")), ("a",), ("d",), hidden),
            summed("attention residual", ("h", "d"), "h", hidden, ("d",)),
            layer_norm(names[1], hidden, "h", "n"),
            *feed_forward(keys, hidden, "n"),
            Op("feed-forward dropout", Dropout(chance), ("y",), ("d",), hidden),
            summed("feed-forward residual", ("h", "d"), "h", hidden, ("d", "x", "n", "a", "y")),
        )
    second = (layer_norm(names[1], hidden, "h", "n"),) if names[1:] else ()
    return (
        first,
        *second,
        *attention,
        *feed_forward(keys, hidden, "n" if second else "x"),
        Op("branches", Add(inplace=True), ("y", "a"), ("y",), hidden),
        Op("dropout", Dropout(chance), ("y",), ("d",), hidden),
        summed("residual", ("h", "d"), "h", hidden, ("d", "x", "a", "y", *(("n",) if second else ()))),
    )


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("n_embed", "hidden_size"))
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("transformer.word_embeddings", vocab, hidden)
    layers = tuple(range(keys.integer("num_hidden_layers")))
    heads = heads_of(keys, hidden[0].size)
    ops = layer(keys, heads, hidden)
    alike = keys.flag("new_decoder_architecture") and heads.kv in (1, heads.query)
    unknown = f"no rule covers {LIKE_HEADS} yet" if alike else ""
    return Model(
        family="falcon",
        handed=Handed(alibi=Alibi(heads.query, masks=True) if keys.flag("alibi") else None),
        prologue=(looked_up("transformer.word_embeddings", words, "h"),),
        embeddings=(words,),
        blocks=(Block("transformer.h", () if alike else ops, weights_of(ops), layers, unknown=unknown),),
        head=language_head(
            (layer_norm("transformer.ln_f", hidden, "h", "h"),), words, "lm_head", keys.flag("tie_word_embeddings")
        ),
        hidden=hidden[0],
        vocab=vocab.size,
        rotary=Rotary(heads.width),
    )

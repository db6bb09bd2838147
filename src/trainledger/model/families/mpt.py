"""MPT: biases by distance made for the longest sequence, one projection of query, key and value, no biases of layers.

Source: transformers/models/mpt/modeling_mpt.py (5.24.0): MptBlock, MptAttention, MptMLP; configuration_mpt.py.
"""

from __future__ import annotations

from typing import Any

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.model_types_layernorm import WIDENING
from trainledger.model.decoder import weights_of
from trainledger.model.keys import Keys
from trainledger.model.layered import equal_heads, language_head, looked_up, summed, table
from trainledger.model.operations_written import NAMED
from trainledger.model.parts import Heads, axis, by_heads, linear, norm
from trainledger.model.program import (
    Act,
    ActKind,
    Alibi,
    Block,
    Dropout,
    Handed,
    Model,
    NormKind,
    Op,
    Split,
    Written,
    WrittenAttention,
)

QKV = ("q", "k", "v")


def _norm(name: str, hidden: Dims, ins: str, out: str) -> Op:
    return Op(name, norm(name, hidden, NormKind.LAYER), (ins,), (out,), hidden)


def _chance(keys: Keys) -> float:
    """The one dropout: of weights, of the attention's result, and of the feed-forward's."""
    given: Any = keys.raw("attn_config", default={})
    if not isinstance(given, dict):
        keys.refuse("attn_config", given, "a table of keys is needed")
        return 0.0
    own = Keys(given, {"attn_pdrop": 0.0})
    if own.raw("clip_qkv") is not None:
        keys.refuse("attn_config.clip_qkv", own.raw("clip_qkv"), "null is needed: clamped projections have no rule")
    chance = own.number("attn_pdrop")
    keys.problems.extend(own.problems)
    return chance


def layer(heads: Heads, hidden: Dims, chance: float) -> tuple[Op, ...]:
    """One layer."""
    each, inner = heads.dims(), axis(Dim.FFN, WIDENING.count * hidden[0].size)
    fused = (Axis(Dim.SLOTS, len(QKV)), *each)
    spec = WrittenAttention(heads.query, heads.kv, heads.width, dropout=chance, how=Written.MPT)
    return (
        _norm("norm_1", hidden, "h", "x"),
        Op("attn.Wqkv", linear("attn.Wqkv", hidden, fused), ("x",), ("qkv",), fused),
        Op("attn.chunk", Split((each,) * len(QKV), chunk=True), ("qkv",), QKV, each),
        *(by_heads("attn.heads", each, value, rotated=False) for value in ("q", "v")),
        Op("attn.attention", spec, QKV, ("a", *NAMED), each),
        Op("attn.out_proj", linear("attn.out_proj", each, hidden), ("a",), ("a",), hidden, (*QKV, "qkv", *NAMED)),
        Op("resid_attn_dropout", Dropout(chance), ("a",), ("d",), hidden),
        summed("attention residual", ("d", "h"), "r", hidden, ("d",)),
        _norm("norm_2", hidden, "r", "x"),
        Op("ffn.up_proj", linear("ffn.up_proj", hidden, inner), ("x",), ("u",), inner),
        Op("ffn.act", Act(ActKind.GELU), ("u",), ("u",), inner),
        Op("ffn.down_proj", linear("ffn.down_proj", inner, hidden), ("u",), ("y",), hidden),
        Op("ffn.dropout", Dropout(chance), ("y",), ("d",), hidden),
        summed("feed-forward residual", ("d", "r"), "h", hidden, ("y", "d", "u", "x", "r", "a")),
    )


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("d_model", "hidden_size"))
    name = "num_attention_heads" if "num_attention_heads" in keys.given else "n_heads"
    heads = equal_heads(keys, name, "d_model", hidden[0].size)
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("transformer.wte", vocab, hidden)
    ops = layer(heads, hidden, _chance(keys))
    layers = tuple(range(keys.integer("n_layers", "num_hidden_layers")))
    return Model(
        family="mpt",
        handed=Handed(
            positions=False, numbered=False, alibi=Alibi(heads.query, keys=keys.integer("max_seq_len"), filled=True)
        ),
        prologue=(looked_up("transformer.wte", words, "h"),),
        embeddings=(words,),
        blocks=(Block("transformer.blocks", ops, weights_of(ops), layers),),
        head=language_head(
            (_norm("transformer.norm_f", hidden, "h", "h"),), words, "lm_head", keys.flag("tie_word_embeddings")
        ),
        hidden=hidden[0],
        vocab=vocab.size,
    )

"""ModernBERT: an encoder with rotary positions, windows in most layers, norms before its branches, gated feed-forward.

Source: transformers/models/modernbert/modeling_modernbert.py (5.24.0): ModernBertEncoderLayer, ModernBertAttention,
ModernBertMLP, ModernBertPredictionHead, the heads of its classes.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.model_types_layernorm import HALVED
from trainledger.model.decoder import SLIDING, grouped, layer_kinds, weights_of
from trainledger.model.families.bert_heads import labels_of
from trainledger.model.keys import Keys
from trainledger.model.layered import dropped, equal_heads, looked_up, summed, table
from trainledger.model.parts import ACTIVATIONS, Heads, axis, linear, norm, project
from trainledger.model.program import (
    Act,
    ActKind,
    Attention,
    First,
    Handed,
    Head,
    Linear,
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

LOCAL = "local"
KINDS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
QKV = ("q", "k", "v")


def _norm(keys: Keys, name: str, hidden: Dims, ins: str, out: str) -> Op:
    return Op(name, norm(name, hidden, NormKind.LAYER, keys.flag("norm_bias")), (ins,), (out,), hidden)


def self_attention(keys: Keys, heads: Heads, hidden: Dims, window: int, source: str) -> tuple[Op, ...]:
    """Reads `source`, leaves its result in `a`."""
    bias, chance, each = keys.flag("attention_bias"), keys.number("attention_dropout"), heads.dims()
    fused = (Axis(Dim.SLOTS, len(QKV)), *each)
    spec = Attention(heads.query, heads.kv, heads.width, causal=False, dropout=chance, window=window)
    tables = LOCAL if window else ""
    rope = Rope(heads.width, heads.width, back=True, twice=True, tables=tables)
    gone = ("w", "q", "k", "v", "qkv", *(() if source == "h" else (source,)))
    return (
        Op("attn.Wqkv", linear("attn.Wqkv", hidden, fused, bias), (source,), ("qkv",), fused),
        Op("attn.unbind", Split((each,) * len(QKV), chunk=True), ("qkv",), QKV, each),
        Op("attn.rotary", rope, ("q", "k"), ("q", "k"), each),
        Op("attn.attention", spec, QKV, ("a",), each),
        Op("attn.Wo", linear("attn.Wo", each, hidden, bias), ("a",), ("w",), hidden),
        Op("attn.out_drop", dropped("", chance, "w", hidden).spec, ("w",), ("a",), hidden, gone),
    )


def feed_forward(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """Reads `n`, leaves its result in `y`."""
    width, bias = keys.integer("intermediate_size"), keys.flag("mlp_bias")
    both, inner = axis(Dim.FFN, width + width), axis(Dim.FFN, width)
    act = keys.choice("hidden_activation", ACTIVATIONS, ActKind.GELU)
    return (
        Op("mlp.Wi", linear("mlp.Wi", hidden, both, bias), ("n",), ("both",), both),
        Op("mlp.chunk", Split((inner, inner), chunk=True), ("both",), ("first", "gate"), inner, ("both",)),
        Op("mlp.act", Act(act), ("first",), ("act",), inner),
        Op("mlp", Multiply(), ("act", "gate"), ("u",), inner, ("act",)),
        dropped("mlp.drop", keys.number("mlp_dropout"), "u", inner),
        Op("mlp.Wo", linear("mlp.Wo", inner, hidden, bias), ("u",), ("y",), hidden, ("n", "first", "gate", "u")),
    )


def layer(keys: Keys, heads: Heads, hidden: Dims, window: int, first: bool) -> tuple[Op, ...]:
    """One layer; the first has no norm before its attention."""
    return (
        *(() if first else (_norm(keys, "attn_norm", hidden, "h", "x"),)),
        *self_attention(keys, heads, hidden, window, "h" if first else "x"),
        summed("attention residual", ("h", "a"), "h", hidden),
        _norm(keys, "mlp_norm", hidden, "h", "n"),
        *feed_forward(keys, hidden),
        summed("feed-forward residual", ("h", "y"), "h", hidden, ("y", "a")),
    )


def _head(keys: Keys, hidden: Dims, words: Weight) -> tuple[Head, int]:
    """The head of the first of `architectures` (a masked-language one by default), and the width of its logits."""
    given = keys.raw("architectures", default=())
    named = given[0] if isinstance(given, list | tuple) and given else given or KINDS[0]
    kind = str(named).removeprefix("ModernBert")
    if kind not in KINDS:
        keys.refuse("architectures", named, f"one of {', '.join('ModernBert' + one for one in KINDS)} is known")
    act = keys.choice("classifier_activation", ACTIVATIONS, ActKind.GELU)
    final = _norm(keys, "model.final_norm", hidden, "h", "h")
    dense = linear("head.dense", hidden, hidden, keys.flag("classifier_bias"))
    pooled = kind == "ForSequenceClassification"
    if pooled and keys.text("classifier_pooling") != "cls":
        keys.refuse("classifier_pooling", keys.raw("classifier_pooling"), "cls is known")
    ops = (
        final,
        *((Op("first", First(), ("h",), ("h",), hidden),) if pooled else ()),
        project("head.dense", dense, "h", "x"),
        Op("head.act", Act(act), ("x",), ("x",), hidden),
        _norm(keys, "head.norm", hidden, "x", "x"),
    )
    if kind == KINDS[0]:
        tied, vocab = keys.flag("tie_word_embeddings"), words.dims[:1]
        own = Weight("decoder.weight", words.dims, Role.HEAD)
        bias = Weight("decoder.bias", vocab, Role.BIAS) if keys.flag("decoder_bias") else None
        logits = Op("decoder", Linear(words if tied else own, bias), ("x",), ("logits",), vocab, ("x",))
        found = tuple(weight for weight in weights_of((*ops, logits)) if weight != words)
        return Head((*ops, logits), found, raised=True), vocab[0].size
    labels = Axis(Dim.TYPES, labels_of(keys))
    classes = linear("classifier", hidden, (labels,), bias=True)
    ops = (
        *ops,
        dropped("drop", keys.number("classifier_dropout"), "x", hidden),
        project("classifier", classes, "x", "logits", ("x",)),
    )
    return Head(ops, weights_of(ops), pooled=pooled), labels.size


def build(keys: Keys) -> Model:
    """The model of these keys: the class named first in `architectures`."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = equal_heads(keys, "num_attention_heads", "hidden_size", hidden[0].size)
    words = table("model.embeddings.tok_embeddings", Axis(Dim.VOCAB, keys.integer("vocab_size")), hidden)
    prologue = (
        looked_up("model.embeddings.tok_embeddings", words, "h"),
        _norm(keys, "model.embeddings.norm", hidden, "h", "h"),
        dropped("model.embeddings.drop", keys.number("embedding_dropout"), "h", hidden),
    )
    every = keys.integer("global_attn_every_n_layers")
    kinds = layer_kinds(keys, keys.integer("num_hidden_layers"), lambda at: bool(at % every))
    half = keys.integer("local_attention") // HALVED.count
    marked = [(kind == SLIDING, at == 0) for at, kind in enumerate(kinds)]
    blocks = grouped(marked, lambda one: layer(keys, heads, hidden, half if one[0] else 0, one[1]))
    head, width = _head(keys, hidden, words)
    return Model(
        family="modernbert",
        handed=Handed(positions=False),
        prologue=prologue,
        embeddings=weights_of(prologue),
        blocks=blocks,
        head=head,
        hidden=hidden[0],
        vocab=width,
        rotary=Rotary(heads.width, tuple(dict.fromkeys(LOCAL if kind == SLIDING else "" for kind in kinds))),
        causal=False,
    )

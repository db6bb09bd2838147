"""DistilBERT: BERT's layers without token types and with one dropout a layer.

Source: transformers/models/distilbert/modeling_distilbert.py (5.24.0): Embeddings, TransformerBlock, FFN and heads.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import INT64
from trainledger.model.decoder import weights_of
from trainledger.model.families.bert_heads import labels_of
from trainledger.model.keys import Keys
from trainledger.model.layered import (
    Projections,
    dropped,
    equal_heads,
    layer_norm,
    looked_up,
    plain,
    summed,
    table,
)
from trainledger.model.parts import ACTIVATIONS, axis, linear, project
from trainledger.model.program import (
    Act,
    ActKind,
    Attention,
    Block,
    Buffer,
    First,
    Handed,
    Head,
    Linear,
    Model,
    Op,
    Role,
    Weight,
)

QKV = ("attention.q_lin", "attention.k_lin", "attention.v_lin")
MLP = ("ffn.lin1", "ffn.activation", "ffn.lin2")
MASKED, CLASSES = "DistilBertForMaskedLM", "DistilBertForSequenceClassification"


def layer(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """One layer."""
    name = "num_attention_heads" if "num_attention_heads" in keys.given else "n_heads"
    heads = equal_heads(keys, name, "dim", hidden[0].size)
    act = keys.choice("activation", ACTIVATIONS, ActKind.GELU)
    chance = keys.number("attention_dropout")
    spec = Attention(heads.query, heads.kv, heads.width, causal=False, dropout=chance, upcast=False, back=False)
    out = linear("attention.out_lin", heads.dims(), hidden, bias=True)
    return (
        *Projections(QKV, hidden, heads, rotated=False, source="h").ops(),
        Op("attention.attention", spec, ("q", "k", "v"), ("a",), heads.dims()),
        Op("attention.out_lin", out, ("a",), ("a",), hidden, ("q", "k", "v")),
        summed("attention residual", ("a", "h"), "s", hidden),
        replace(layer_norm("sa_layer_norm", hidden, "s", "x"), drop=("s", "a")),
        *plain(MLP, hidden, keys.integer("hidden_dim"), act),
        dropped("ffn.dropout", keys.number("dropout"), "y", hidden),
        summed("feed-forward residual", ("y", "x"), "s", hidden),
        replace(layer_norm("output_layer_norm", hidden, "s", "h"), drop=("s", "x", "y")),
    )


def _prologue(keys: Keys, words: Weight, places: Weight) -> tuple[Op, ...]:
    name, hidden = "distilbert.embeddings", words.dims[1:]
    names = ("inputs_embeds", "position_embeds")
    return (
        looked_up(f"{name}.word_embeddings", words, names[0]),
        looked_up(f"{name}.position_embeddings", places, names[1], "position_ids", per_batch=False),
        summed(f"{name}.and positions", names, "h", hidden),
        layer_norm(f"{name}.LayerNorm", hidden, "h", "h"),
        dropped(f"{name}.dropout", keys.number("dropout"), "h", hidden, names),
    )


def _masked(keys: Keys, hidden: Dims, words: Weight) -> Head:
    """Dense layer, activation, norm, then the vocabulary with a bias of its own."""
    vocab, tied = words.dims[:1], keys.flag("tie_word_embeddings")
    act = keys.choice("activation", ACTIVATIONS, ActKind.GELU)
    own = Weight("vocab_projector.weight", words.dims, Role.HEAD)
    bias = Weight("vocab_projector.bias", vocab, Role.BIAS)
    ops = (
        project("vocab_transform", linear("vocab_transform", hidden, hidden, bias=True), "h", "x"),
        Op("activation", Act(act), ("x",), ("x",), hidden),
        layer_norm("vocab_layer_norm", hidden, "x", "x"),
        Op("vocab_projector", Linear(words if tied else own, bias), ("x",), ("logits",), vocab, ("x",)),
    )
    return Head(ops, tuple(weight for weight in weights_of(ops) if weight != words))


def _classes(keys: Keys, hidden: Dims) -> Head:
    """The first token, a dense layer, ReLU, dropout, the classifier."""
    labels = axis(Dim.TYPES, labels_of(keys))
    ops = (
        Op("first", First(), ("h",), ("x",), hidden),
        project("pre_classifier", linear("pre_classifier", hidden, hidden, bias=True), "x", "x"),
        Op("relu", Act(ActKind.RELU), ("x",), ("x",), hidden),
        dropped("dropout", keys.number("seq_classif_dropout"), "x", hidden),
        project("classifier", linear("classifier", hidden, labels, bias=True), "x", "logits", ("x",)),
    )
    return Head(ops, weights_of(ops), pooled=True)


def build(keys: Keys) -> Model:
    """The model of these keys: the class named first in `architectures`, else the one with a masked-language head."""
    if keys.flag("sinusoidal_pos_embds"):
        keys.refuse("sinusoidal_pos_embds", True, "positions that are trained are needed")
    hidden = axis(Dim.HIDDEN, keys.integer("dim", "hidden_size"))
    words = table("distilbert.embeddings.word_embeddings", Axis(Dim.VOCAB, keys.integer("vocab_size")), hidden)
    rows = Axis(Dim.POSITIONS, keys.integer("max_position_embeddings"))
    places = table("distilbert.embeddings.position_embeddings", rows, hidden, Role.POSITION)
    given = keys.raw("architectures", default=(MASKED,))
    kind = given[0] if isinstance(given, list | tuple) and given else given
    if kind not in (MASKED, CLASSES):
        keys.refuse("architectures", kind, f"one of {MASKED}, {CLASSES} is known")
    head = _classes(keys, hidden) if kind == CLASSES else _masked(keys, hidden, words)
    prologue, ops = _prologue(keys, words, places), layer(keys, hidden)
    layers = tuple(range(keys.integer("n_layers", "num_hidden_layers")))
    return Model(
        family="distilbert",
        handed=Handed(("mask",), positions=False),
        prologue=prologue,
        embeddings=weights_of(prologue),
        blocks=(Block("distilbert.transformer.layer", ops, weights_of(ops), layers),),
        head=head,
        hidden=hidden[0],
        vocab=head.ops[-1].dims[0].size,
        buffers=(Buffer("distilbert.embeddings.position_ids", (Axis(Dim.ONE, 1), rows), INT64),),
        causal=False,
    )

"""BERT, RoBERTa and its kin, ELECTRA: encoders that normalise after each residual connection, with the head of their
class.

Sources: transformers/models/{bert,roberta,electra}/modeling_*.py (5.24.0): embeddings, BertLayer, BertPooler,
BertLMPredictionHead, RobertaLMHead, RobertaClassificationHead, ElectraModel.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import INT64
from trainledger.model.decoder import weights_of
from trainledger.model.families.bert_heads import ELECTRA, Place, head_of
from trainledger.model.keys import Keys
from trainledger.model.layered import (
    Projections,
    dropped,
    equal_heads,
    layer_norm,
    looked_up,
    summed,
    table,
)
from trainledger.model.parts import ACTIVATIONS, axis, linear, project
from trainledger.model.program import Act, ActKind, Attention, Block, Buffer, Handed, Model, Op, Role, Weight

KIN = ("xlm-roberta", "camembert")  # whose classes are RoBERTa's with the head made first
QKV = ("attention.self.query", "attention.self.key", "attention.self.value")


def _branch_end(name: str, keys: Keys, hidden: Dims, drop: tuple[str, ...]) -> tuple[Op, ...]:
    """Dropout of `y`, the residual connection and its norm, with whose end the module's names end."""
    return (
        dropped(f"{name}.dropout", keys.number("hidden_dropout_prob"), "y", hidden),
        summed(f"{name}.residual", ("y", "h"), "s", hidden),
        replace(layer_norm(f"{name}.LayerNorm", hidden, "s", "h"), drop=drop),
    )


def layer(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """One layer."""
    heads = equal_heads(keys, "num_attention_heads", "hidden_size", hidden[0].size)
    act = keys.choice("hidden_act", ACTIVATIONS, ActKind.GELU)
    inner = axis(Dim.FFN, keys.integer("intermediate_size"))
    chance = keys.number("attention_probs_dropout_prob")
    spec = Attention(heads.query, heads.kv, heads.width, causal=False, dropout=chance, upcast=False, back=False)
    out = linear("attention.output.dense", heads.dims(), hidden, bias=True)
    return (
        *Projections(QKV, hidden, heads, rotated=False, source="h").ops(),
        Op("attention.attention", spec, ("q", "k", "v"), ("o",), heads.dims(), ("q", "k", "v")),
        project("attention.output.dense", out, "o", "y"),
        *_branch_end("attention.output", keys, hidden, ("s", "y", "o")),
        Op("intermediate.dense", linear("intermediate.dense", hidden, inner, bias=True), ("h",), ("x",), inner),
        Op("intermediate.intermediate_act_fn", Act(act), ("x",), ("x",), inner),
        project("output.dense", linear("output.dense", inner, hidden, bias=True), "x", "y"),
        *_branch_end("output", keys, hidden, ("s", "y", "x")),
    )


def _prologue(keys: Keys, name: str, tables: tuple[Weight, Weight, Weight]) -> tuple[Op, ...]:
    """Word, type and position rows summed, a norm, dropout. RoBERTa counts positions by sequence, past its padding."""
    words, types, places = tables
    hidden = words.dims[1:]
    return (
        looked_up(f"{name}.word_embeddings", words, "inputs_embeds"),
        looked_up(f"{name}.token_type_embeddings", types, "type_embeds", "token_type_ids"),
        summed(f"{name}.words and types", ("inputs_embeds", "type_embeds"), "h", hidden),
        looked_up(f"{name}.position_embeddings", places, "position_embeds", "position_ids", name.startswith("roberta")),
        summed(f"{name}.and positions", ("h", "position_embeds"), "h", hidden),
        layer_norm(f"{name}.LayerNorm", hidden, "h", "h"),
        dropped(
            f"{name}.dropout", keys.number("hidden_dropout_prob"), "h", hidden,
            ("inputs_embeds", "type_embeds", "position_embeds"),
        ),
    )  # fmt: skip


def build(keys: Keys) -> Model:
    """The model of these keys: the class named first in `architectures`, else the one with a masked-language head."""
    kind = keys.text("model_type", default="bert")
    family = "roberta" if kind in KIN else kind  # also what its classes call the encoder
    for name in ("is_decoder", "add_cross_attention"):
        if keys.flag(name):
            keys.refuse(name, True, "an encoder is needed")
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    name = f"{family}.embeddings"
    width = axis(Dim.HIDDEN, keys.integer("embedding_size")) if family == ELECTRA else hidden
    words = table(f"{name}.word_embeddings", vocab, width)
    types = table(f"{name}.token_type_embeddings", Axis(Dim.TYPES, keys.integer("type_vocab_size")), width)
    rows = Axis(Dim.POSITIONS, keys.integer("max_position_embeddings"))
    places = table(f"{name}.position_embeddings", rows, width, Role.POSITION)
    prologue = _prologue(keys, name, (words, types, places))
    if width != hidden:
        wider = f"{family}.embeddings_project"
        prologue = (*prologue, project(wider, linear(wider, width, hidden, bias=True), "h", "h"))
    ops = layer(keys, hidden)
    layers = tuple(range(keys.integer("num_hidden_layers")))
    head, classes = head_of(keys, Place(family, hidden, words))
    return Model(
        family=KIN[0] if kind in KIN else kind,
        handed=Handed(("mask",), positions=False),
        prologue=prologue,
        embeddings=weights_of(prologue),
        blocks=(Block(f"{family}.encoder.layer", ops, weights_of(ops), layers),),
        head=head,
        hidden=hidden[0],
        vocab=classes,
        buffers=tuple(
            Buffer(f"{name}.{kind}", (Axis(Dim.ONE, 1), rows), INT64) for kind in ("position_ids", "token_type_ids")
        ),
        causal=False,
    )

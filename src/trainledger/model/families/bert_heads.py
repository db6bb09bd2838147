"""The heads of BERT's, RoBERTa's and ELECTRA's classes, by the name in `architectures`.

Sources: transformers/models/{bert,roberta,electra}/modeling_*.py (5.24.0).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.model_types_layernorm import NEXT_SENTENCE
from trainledger.model.decoder import weights_of
from trainledger.model.keys import Keys
from trainledger.model.layered import dropped, layer_norm
from trainledger.model.parts import ACTIVATIONS, linear, project
from trainledger.model.program import Act, ActKind, First, Head, Linear, Op, Role, Weight

KINDS = ("ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
SPOKEN = {
    "bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert", "electra": "Electra",
}  # by type  # fmt: skip
ELECTRA = "electra"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a head stands: the family's name, the hidden size and the table of words."""

    family: str
    hidden: Dims
    words: Weight


def head_of(keys: Keys, place: Place) -> tuple[Head, int]:
    """The head of the first of `architectures` (a masked-language head by default), and the width of its logits."""
    given = keys.raw("architectures", default=())
    first = given[0] if isinstance(given, list | tuple) and given else given or "ForMaskedLM"
    spoken = SPOKEN.get(keys.text("model_type"), SPOKEN[place.family])
    known = {f"{spoken}{kind}": kind for kind in KINDS} | {"ForMaskedLM": "ForMaskedLM"}
    kind = known.get(first) if isinstance(first, str) else None
    if kind is None or (kind == "ForPreTraining" and place.family != "bert"):
        names = ", ".join(f"{spoken}{kind}" for kind in KINDS)
        keys.refuse("architectures", first, f"one of {names} is known")
        kind = "ForMaskedLM"
    if kind == "ForMaskedLM" and place.family == ELECTRA:
        return _generated(keys, place), place.words.dims[0].size
    if kind in ("ForMaskedLM", "ForPreTraining"):
        extra = () if kind == "ForMaskedLM" else _next_sentence(place)
        return _masked(keys, place, extra), place.words.dims[0].size
    labels = Axis(Dim.TYPES, labels_of(keys))
    if kind == "ForSequenceClassification":
        made = _pooled if place.family == "bert" else _classified
        ops = made(keys, place, labels)
        return Head(ops, weights_of(ops), pooled=True), labels.size
    return _by_token(keys, place, labels, kind), labels.size


def labels_of(keys: Keys) -> int:
    """How many classes: as many as `id2label` names, else `num_labels`."""
    names = keys.raw("id2label")
    return len(names) if isinstance(names, dict) and names else keys.integer("num_labels")


def _masked(keys: Keys, place: Place, extra: tuple[Weight, ...]) -> Head:
    """Dense layer, activation, norm, then the vocabulary: weight and bias shared when embeddings are tied."""
    roberta = place.family == "roberta"
    transform = "lm_head" if roberta else "cls.predictions.transform"
    outer = "lm_head" if roberta else "cls.predictions"
    act = ActKind.GELU if roberta else keys.choice("hidden_act", ACTIVATIONS, ActKind.GELU)
    function = f"{outer}.gelu" if roberta else f"{transform}.transform_act_fn"
    tied, vocab = keys.flag("tie_word_embeddings"), place.words.dims[:1]
    alone = Weight(f"{outer}.bias", vocab, Role.BIAS)
    own = Weight(f"{outer}.decoder.weight", place.words.dims, Role.HEAD)
    bias = alone if tied else Weight(f"{outer}.decoder.bias", vocab, Role.BIAS)
    dense = linear(f"{transform}.dense", place.hidden, place.hidden, bias=True)
    ops = (
        project(f"{transform}.dense", dense, "h", "x"),
        Op(function, Act(act), ("x",), ("x",), place.hidden),
        layer_norm(f"{transform}.{'layer_norm' if roberta else 'LayerNorm'}", place.hidden, "x", "x"),
        Op(f"{outer}.decoder", Linear(place.words if tied else own, bias), ("x",), ("logits",), vocab, ("x",)),
    )
    read = tuple(weight for weight in weights_of(ops) if weight != place.words)
    return Head(ops, (*read, *(() if tied else (alone,)), *extra))


def _generated(keys: Keys, place: Place) -> Head:
    """ELECTRA's generator: down to the embedding's width, activation, norm, the vocabulary with an own bias."""
    vocab, width = place.words.dims[:1], place.words.dims[1:]
    name, outer = "generator_predictions", "generator_lm_head"
    own = Weight(f"{outer}.weight", place.words.dims, Role.HEAD)
    decoder = Linear(
        place.words if keys.flag("tie_word_embeddings") else own, Weight(f"{outer}.bias", vocab, Role.BIAS)
    )
    ops = (
        project(f"{name}.dense", linear(f"{name}.dense", place.hidden, width, bias=True), "h", "x"),
        Op(f"{name}.activation", Act(ActKind.GELU), ("x",), ("x",), width),
        layer_norm(f"{name}.LayerNorm", width, "x", "x"),
        Op(outer, decoder, ("x",), ("logits",), vocab, ("x",)),
    )
    return Head(ops, tuple(weight for weight in weights_of(ops) if weight != place.words))


def _next_sentence(place: Place) -> tuple[Weight, ...]:
    """Weights of the pooler and of the next-sentence head, which no operation here reads."""
    pooler = linear("bert.pooler.dense", place.hidden, place.hidden, bias=True)
    pair = linear("cls.seq_relationship", place.hidden, (Axis(Dim.TYPES, NEXT_SENTENCE.count),), bias=True)
    found = (pooler.weight, pooler.bias, pair.weight, pair.bias)
    return tuple(weight for weight in found if weight is not None)


def _chance(keys: Keys) -> float:
    return keys.number("classifier_dropout", "hidden_dropout_prob")


def _pooled(keys: Keys, place: Place, labels: Axis) -> tuple[Op, ...]:
    """BERT: the pooler, dropout, the classifier. The pooled row's dense input is a slice of the hidden state."""
    dense = linear("bert.pooler.dense", place.hidden, place.hidden, bias=True)
    return (
        Op("bert.pooler.first", First(), ("h",), ("first",), place.hidden),
        project("bert.pooler.dense", dense, "first", "x"),
        Op("bert.pooler.activation", Act(ActKind.TANH), ("x",), ("x",), place.hidden, ("first",)),
        dropped("dropout", _chance(keys), "x", place.hidden),
        project("classifier", linear("classifier", place.hidden, (labels,), bias=True), "x", "logits"),
    )


def _classified(keys: Keys, place: Place, labels: Axis) -> tuple[Op, ...]:
    """RoBERTa and ELECTRA: the first token, dropout, a dense layer, tanh or GELU, dropout, the classifier."""
    name, act = ("activation", ActKind.GELU) if place.family == ELECTRA else ("tanh", ActKind.TANH)
    dense = linear("classifier.dense", place.hidden, place.hidden, bias=True)
    out = linear("classifier.out_proj", place.hidden, (labels,), bias=True)
    return (
        Op("classifier.first", First(), ("h",), ("x",), place.hidden),
        dropped("classifier.dropout", _chance(keys), "x", place.hidden),
        project("classifier.dense", dense, "x", "x"),
        Op(f"classifier.{name}", Act(act), ("x",), ("x",), place.hidden),
        dropped("classifier.dropout", _chance(keys), "x", place.hidden),
        project("classifier.out_proj", out, "x", "logits", ("x",)),
    )


def _by_token(keys: Keys, place: Place, labels: Axis, kind: str) -> Head:
    """A linear layer over every token: classes after a dropout, or a span's start and end."""
    classes = kind == "ForTokenClassification"
    name = "classifier" if classes else "qa_outputs"
    first = (dropped("dropout", _chance(keys), "h", place.hidden),) if classes else ()
    ops = (*first, project(name, linear(name, place.hidden, (labels,), bias=True), "h", "logits"))
    return Head(ops, weights_of(ops))

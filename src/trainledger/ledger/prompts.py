"""Trained prompts, trained keys and values, and trained rows of an embedding on a tape.

Sources: peft/peft_model.py (PeftModelForCausalLM.forward, get_prompt), peft/tuners/prefix_tuning/model.py,
peft/tuners/trainable_tokens/layer.py (0.21.2); transformers/cache_utils.py, DynamicLayer.update (4.56.0 to 5.24.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import INT64, DType
from trainledger.facts.peft import Told
from trainledger.ledger import aten, nn
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Prefix
from trainledger.model.prompts import PAIR

PREFIX = tuple(f"prefix {name}" for name in PAIR)  # names under which a layer is given them
CACHED = tuple(f"cached {name}" for name in PAIR)  # names under which the cache keeps the longer ones


class Rows(NamedTuple):
    """The values of a prompt's table and layers, and the words' rows."""

    table: int
    layers: tuple[tuple[int, int], ...]
    words: int


def prompts(t: Tape, given: Rows) -> list[int]:
    """The words' rows after the prompt's, and the prompt's, one sample of which is repeated over the batch."""
    batch, sequence, hidden = t.dims[given.words]
    count = t.dims[given.table][0].size
    one: Dims = (Axis(Dim.ONE, 1), Axis(Dim.SEQUENCE, count))
    made = nn.embedding(t, t.outside(one, INT64, False), given.table, (*one, hidden))
    for at, (weight, bias) in enumerate(given.layers):
        made = aten.unary(t, "relu", made, saves_out=True) if at else made
        made = nn.linear(t, made, (*one, t.dims[weight][0]), weight, bias)
    each = (batch, one[1], hidden)
    repeated = t.fresh(each, t.dtype[made], t.grad[made], "prompt of every sequence")
    t.run(Prim("repeat", (made,), (repeated,), (), aten.GRAD0, ()))
    rows = aten.to(t, repeated, t.dtype[given.words])
    longer = (batch, Axis(Dim.SEQUENCE, sequence.size + count), hidden)
    return [aten.cat(t, [rows, given.words], longer), rows]


class Past(NamedTuple):
    """A prefix's batch, the values of its table and layers, the dtype of the model's weights, and how keys are told
    from values."""

    batch: Axis
    table: int
    layers: tuple[tuple[int, int], ...]
    dtype: DType
    told: Told


def past(t: Tape, spec: Prefix, given: Past) -> list[int]:
    """Keys and values of every layer, in turn: copies of what the table, or its network, makes for each sequence."""
    tokens: Dims = (given.batch, Axis(Dim.SEQUENCE, spec.count))
    ids = t.fresh(tokens, INT64, False, "numbers of the prefix's tokens")
    t.run(Prim("to", (), (ids,), (), (), ()))
    made = nn.embedding(t, ids, given.table, (*tokens, *t.dims[given.table][1:]))
    for at, (weight, bias) in enumerate(given.layers):
        made = aten.unary(t, "tanh", made, saves_out=True) if at else made
        made = nn.linear(t, made, (*tokens, t.dims[weight][0]), weight, bias)
    one: Dims = (*tokens, *spec.heads)
    both: Dims = (Axis(Dim.SLOTS, len(PAIR)), *one)
    low = aten.to(t, made, given.dtype)
    turned = aten.heads_first(t, low, (Axis(Dim.ROWS, spec.copies), *both))
    found: list[int] = []
    for layer in aten.chunk(t, turned, [both] * spec.copies):
        found += [aten.copy(t, x) for x in _told(t, layer, (both, one), given.told)]
    return found


def _told(t: Tape, layer: int, dims: tuple[Dims, Dims], told: Told) -> list[int]:
    both, one = dims
    if told is Told.SELECTED:
        return [aten.part(t, layer, one) for _ in PAIR]
    return aten.chunk(t, aten.part(t, layer, both) if told is Told.SLICED else layer, [one for _ in PAIR])


def extended(t: Tape, names: dict[str, int], own: Sequence[str]) -> None:
    """Binds keys and values, which have the names `own`, to their concatenations after a prefix's, where there is one:
    the cache keeps these and lets go of the prefix's; the layer's own end when both are made."""
    if PREFIX[0] not in names:
        return
    scope, t.scope = t.scope, "past_key_values"
    ended = [names[name] for name in own]
    for name, given, cached in zip(own, PREFIX, CACHED, strict=True):
        before, x = names.pop(given), names[name]
        wide = aten.promote(t.dtype[before], t.dtype[x])
        batch, tokens, *heads = t.dims[x]
        dims = (batch, Axis(Dim.SEQUENCE, t.dims[before][1].size + tokens.size), *heads)
        whole = aten.cat(t, [aten.to(t, one, wide) for one in (before, x)], dims, f"{cached} after the prefix's")
        names[name] = names[cached] = whole
    t.end(ended)
    t.scope = scope


def labels(t: Tape, longer: Dims) -> int:
    """The labels with those of the prompt, which do not count."""
    return t.run(Prim("cat", (), (t.fresh(longer, INT64, False, "labels with the prompt's"),), (), (), ()))


def table(t: Tape, own: int, rows: int) -> int:
    """The whole table with the trained rows copied in: saves their places; backward picks their gradients."""
    low = aten.to(t, rows, t.dtype[own])
    place = t.fresh(t.dims[rows][:1], INT64, False, "places of trained rows")
    t.run(Prim("tensor", (), (place,), (), (), ()))
    out = t.fresh(t.dims[own], t.dtype[own], t.grad[rows], "table with the trained rows")
    return t.run(Prim("index_copy", (own, low, place), (out,), (place,), (Step(Code.GRAD, 1),), ()))

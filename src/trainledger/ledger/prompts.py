"""Trained prompts and trained rows of an embedding on a tape.

Sources: peft/peft_model.py (PeftModelForCausalLM.forward, get_prompt), peft/tuners/trainable_tokens/layer.py (0.21.2).
"""

from __future__ import annotations

from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import INT64
from trainledger.ledger import aten, nn
from trainledger.ledger.tape import Code, Prim, Step, Tape


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

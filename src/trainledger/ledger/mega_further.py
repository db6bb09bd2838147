"""Megatron-Core's layers that predict further tokens, and their losses, on the tape of the loss.

Source: megatron/core/transformer/multi_token_prediction.py, MultiTokenPredictionBlock, process_mtp_loss (0.12 to 0.19).
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import INT64
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega_embedding import cut
from trainledger.ledger.rules import lower
from trainledger.ledger.tape import Code, Prim, Step
from trainledger.model.program import Model, Op

LAYER = "mtp"  # a whole layer, which may run again
EMBEDDED = "e"  # the rows of the embedding, as the layers name them
Loss = Callable[[int], int]  # of logits, the loss of every token


def predicted(f: Frame, model: Model, count: int) -> int:
    """Hidden states of the model and of each of its layers for further tokens, in one tensor."""
    t, names = f.tape, f.names
    every = [names["h"]]
    (block,) = model.further
    for _ in range(count):
        hidden = names.pop("h")
        names["input_ids"] = t.outside(f.dims(()), INT64, False)
        lower(f, model.prologue)
        names[EMBEDDED], names["h"] = names.pop("h"), hidden
        first = len(t.prims)
        lower(f, block.ops)
        f.marks.append((LAYER, first, len(t.prims)))
        for weight in block.weights:  # the next layer has its own
            f.params.pop(weight, None)
        every.append(names["h"])
    dims = t.dims[every[0]]
    longer = tuple(Axis(one.dim, one.size * len(every)) if one.dim is Dim.SEQUENCE else one for one in dims)
    together = aten.cat(t, every, longer, "hidden states of all predictions")
    t.end(every)
    return together


def parted(f: Frame, together: int, count: int) -> list[int]:
    """The model's hidden states and those of `count` further tokens as views of one tensor, which loses its name."""
    dims = cut(f.tape.dims[together], 1 + count)
    parts = aten.chunk(f.tape, together, [dims] * (1 + count))
    f.tape.end([together])
    return parts


def attached(f: Frame, head: tuple[Op, ...], parts: list[int], loss: Loss) -> int:
    """The model's hidden states, to which the losses of further tokens are attached: of logits that keep their name
    until the next are made."""
    t, names = f.tape, f.names
    hidden, *others = parts
    named: list[int] = []
    for part in others:
        names["h"] = part
        lower(f, head)
        logits = names.pop("logits")
        t.end(named)
        each = loss(logits)
        out = t.alias(hidden)
        t.run(Prim("attach", (hidden, each), (out,), (), (Step(Code.PASS, 0), Step(Code.GRAD, 1)), ()))
        t.end([each])
        named, hidden = [logits], out
    t.end([*named, *parts])
    return hidden

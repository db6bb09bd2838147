"""A trained prefix as a piece of its own: keys and values of every layer, made before the embedding runs and handed to
the layers, which hand their gradients back when the whole backward has passed them.

Sources: peft/peft_model.py, get_prompt (0.21.2); torch/csrc/autograd/FunctionsManual.cpp, cat_tensors_backward: the
gradients of what was concatenated are views of the whole (v2.4 to v2.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import DType
from trainledger.facts.peft import PREFIX_CACHE, told_apart
from trainledger.ledger import prompts
from trainledger.ledger.blocks import Walked, Walker
from trainledger.ledger.frame import Frame
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.piece import Piece
from trainledger.ledger.prompts import CACHED, PREFIX
from trainledger.ledger.tape import EXTERNAL
from trainledger.lines.line import Account
from trainledger.model.program import Prefix
from trainledger.model.prompts import prefix_of

if TYPE_CHECKING:
    from trainledger.ledger.opening import Job


class Given(NamedTuple):
    """What a layer is given of a prefix: lines by storage, and names of gradients by value."""

    known: dict[int, int]
    passed: dict[int, str]


def _shape(job: Job, spec: Prefix) -> Dims:
    return (Axis(Dim.BATCH, job.run.setting.batch), Axis(Dim.SEQUENCE, spec.count), *spec.heads)


def _line(job: Job, dims: Dims, dtype: DType) -> int:
    return job.book.tensor(
        Account.ACTIVATIONS, "a layer's keys or values of the prefix", dims, dtype, PREFIX_CACHE.source
    )


def given_to(job: Job, frame: Frame) -> Given:
    """The prefix's keys and values under their names on a layer's tape, where the model has a prefix."""
    spec, tape = prefix_of(job.model), frame.tape
    found = Given({}, {})
    if spec is None:
        return found
    for name in PREFIX:
        value = tape.inherit(_shape(job, spec), job.run.setting.weights, True, name)
        frame.names[name] = value
        found.known[tape.store[value]] = _line(job, tape.dims[value], tape.dtype[value])
        found.passed[value] = f"gradient of {name}, a part of all keys'"
    return found


def kept(job: Job, frame: Frame, place: str) -> dict[int, int]:
    """The lines of the longer keys and values of a layer, which the cache keeps, by value. `place`: what the layer's
    lines are called by."""
    found: dict[int, int] = {}
    for name in CACHED:
        if name in frame.names:
            value = frame.names[name]
            made = frame.tape.storages[frame.tape.store[value]]
            label = f"{place}{name} after the prefix's"
            found[value] = job.book.tensor(Account.ACTIVATIONS, label, made.dims, made.dtype, PREFIX_CACHE.source)
    return found


def with_prefix(job: Job, leaves: Leaves, opening: Walked, gradients: Sequence[int]) -> Walked:
    """What comes before the layers, after the prefix forward and before it backward. `gradients`: lines of those that
    each layer leaves of its keys and values, in order of the layers."""
    spec = prefix_of(job.model)
    if spec is None:
        return opening
    frame = job.frame()
    tape, setting = frame.tape, frame.setting
    tape.scope = "prompt_encoder"
    pairs = tuple((frame.need(weight), frame.need(bias)) for weight, bias in spec.layers)
    told = told_apart(job.model.family, setting.transformers)
    batch = Axis(Dim.BATCH, setting.batch)
    made = prompts.past(tape, spec, prompts.Past(batch, frame.need(spec.table), pairs, setting.weights, told))
    tape.end(list(tape.cached.values()))
    known = {tape.store[value]: _line(job, tape.dims[value], tape.dtype[value]) for value in made}
    piece = Piece(tape, EXTERNAL, made[-1], "", known, gradients[-1], EXTERNAL, {})
    walked = Walker(job.book, piece, leaves.last).several(dict(zip(made, gradients, strict=True)))
    return _joined(walked, opening)


def _joined(first: Walked, then: Walked) -> Walked:
    """Both pieces as one: the first forward, and last backward."""
    ahead, behind = len(first.forward), len(then.backward)
    forward = first.products[0] or _later(then.products[0], ahead)
    backward = then.products[1] or _later(first.products[1], behind)
    return replace(
        then,
        forward=(*first.forward, *then.forward),
        backward=(*then.backward, *first.backward),
        loose=(*first.loose, *then.loose),
        products=(forward, backward),
        arrived=(*then.arrived, *(one._replace(at=one.at + behind) for one in first.arrived)),
    )


def _later(product: int, events: int) -> int:
    return product + events if product else 0

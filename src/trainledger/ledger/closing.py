"""The head and the loss of a micro-batch, walked: what dies in them, and what the caller's names keep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from trainledger.facts.code_read import AUTOGRAD
from trainledger.facts.dtypes import FP32, INT64, DType
from trainledger.ledger.blocks import Walked
from trainledger.ledger.frame import Frame
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.losses import closing_program
from trainledger.ledger.losses_pairs import CHOSEN
from trainledger.ledger.losses_read import KEPT
from trainledger.ledger.opening import Job, Opening
from trainledger.ledger.outputs import Output, raises
from trainledger.ledger.piece import Piece
from trainledger.lines.line import Account

LOSS, LOGITS = "loss", "logits"


class Ending(NamedTuple):
    """Lines of what the model's own forward kept by name until it returned; and of hidden states that its outputs hold
    besides, -1 where autograd holds them too, with their dtypes."""

    inside: list[int]
    outputs: list[tuple[int, DType]]


def edge(job: Job, opening: Opening, dtype: DType) -> tuple[int, int]:
    """Lines of hidden states between layers in this dtype, and of their gradient."""
    dims = opening.frame.tape.dims[opening.frame.names["h"]]
    named = ((Account.ACTIVATIONS, "hidden states"), (Account.BACKWARD, "gradient of hidden states"))
    hidden, slope = (job.book.tensor(account, name, dims, dtype, AUTOGRAD) for account, name in named)
    return hidden, slope


@dataclass(frozen=True, slots=True)
class Closing:
    """The head and the loss, walked; lines of the loss's gradient and of what the caller's names keep: the loss, and
    the model's results; after how many events of forward the name of these is bound anew (0: with the loss's); the
    logits, where they live until they are copied; after how many events the model's own forward had returned (0: the
    loss is made within); the logits where they are cloned, whatever holds them."""

    walked: Walked
    arriving: int
    named: tuple[int, ...]
    results: tuple[int, ...]
    bound: int
    logits: Output | None
    left: int = 0
    cloned: Output | None = None


def closing_of(job: Job, opening: Opening, leaves: Leaves, ending: Ending, last: tuple[bool, DType]) -> Closing:
    """The head and the loss; `last`: whether the last hidden states need a gradient, and their dtype."""
    frame, pro = job.frame(), opening.frame
    tape, hidden = frame.tape, pro.names["h"]
    grad, dtype = last
    source = tape.inherit(pro.tape.dims[hidden], dtype, grad, "hidden states")
    before, leaving = edge(job, opening, dtype)
    known = {tape.store[source]: before}
    values = _handed(frame, ending, known, source)
    frame.names["h"] = source
    made = closing_program(frame, job.model, values, job.run.scoring)
    loss, logits = made.loss, made.outputs[0] if made.outputs else None
    held = bool(job.run.scoring.held)
    clones = logits is not None and job.run.software.clones and not held and not made.left
    passes = logits is not None and _passes(job, tape.dtype[logits], clones)
    results = made.outputs if job.run.keeps_logits or passes or held else ()
    tape.end([*frame.names.values(), *tape.cached.values()])
    lines = {
        tape.store[value]: job.line(Account.LOGITS, name, frame, value)
        for name, value in zip(_names(frame, results), (loss, *results), strict=True)
    }
    arriving = job.line(Account.LOGITS, "gradient of the loss", frame, loss)
    bound = made.bound or made.left
    piece = Piece(tape, source, loss, "", known | lines, arriving, leaving, {}, calls=frame.calls, bound=bound)
    walked = job.walker(piece, leaves.first, job.model.head.weights).plain(
        frozenset((loss, *results)), lasting=frozenset((loss,) if passes or held else (loss, *results))
    )
    if held:
        named = tuple(lines[tape.store[one]] for one in results if tape.store[one] not in walked.held)
        return Closing(walked, arriving, (lines[tape.store[loss]],), named, 0, None, walked.visits.bound)
    if made.left:
        return Closing(walked, arriving, tuple(lines.values()), (), 0, None, walked.visits.bound)
    first, *rest = lines.values()
    output = None if logits is None else Output(lines.get(tape.store[logits], 0), tape.dims[logits], tape.dtype[logits])
    cloned = output if clones else None
    if not passes or logits is None:
        return Closing(walked, arriving, (first,), tuple(rest), walked.visits.bound, None, cloned=cloned)
    return Closing(walked, arriving, (first,), (), 0, None if tape.store[logits] in walked.held else output, 0, cloned)


def _passes(job: Job, dtype: DType, clones: bool) -> bool:
    """Whether logits of this dtype live past the loss for a copy, a log or a clone, and go then."""
    run = job.run
    raised = raises(run) and dtype != FP32
    return raised or run.scoring.shows is not None or (clones and not run.keeps_logits)


def _names(frame: Frame, results: tuple[int, ...]) -> list[str]:
    """What the lines of the loss and of the model's results are called."""
    chosen = frame.names.get(CHOSEN)
    words = (CHOSEN if one == chosen else f"{LOGITS} ({at})" if at else LOGITS for at, one in enumerate(results))
    return [LOSS, *words]


def _handed(frame: Frame, ending: Ending, known: dict[int, int], source: int) -> list[int]:
    """Values of what the model's own forward kept by name, and in the frame of what its outputs hold; their lines are
    `known` by storage."""
    tape, values = frame.tape, []
    for line in ending.inside:
        values.append(tape.inherit((), INT64, False, ""))
        known[tape.store[values[-1]]] = line
    for at, (line, dtype) in enumerate(ending.outputs):
        given = tape.outside if line < 0 else partial(tape.inherit, name="")
        kept = frame.names[f"{KEPT} {at}"] = given(tape.dims[source], dtype, False)
        if line >= 0:
            known[tape.store[kept]] = line
    return values


def held_gradient(closing: Closing) -> Walked:
    """The head's backward without the end of the loss's own gradient: `backward`, which made it, names it to its end.

    Source: torch/autograd/__init__.py, backward (v2.13).
    """
    walked, dies = closing.walked, -closing.arriving - 1
    if not walked.trains or dies not in walked.backward:
        return walked
    gone = walked.backward.index(dies)
    events = (*walked.backward[:gone], *walked.backward[gone + 1 :])
    arrived = tuple(one._replace(at=one.at - (one.at > gone)) for one in walked.arrived)
    ahead, product = walked.products
    visits, made = walked.visits.without(gone), (ahead, product - (product > gone))
    return replace(walked, backward=events, arrived=arrived, products=made, visits=visits)

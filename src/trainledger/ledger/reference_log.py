"""What a loss function makes of the policy's logits after the reference's passes: numbers for the trainer's log, and
log-probabilities of a pass whose logits waited.

Source: the rows in facts/preferences_trl.py.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.phases import REFERENCE
from trainledger.ledger.losses_log import Shown, metric
from trainledger.ledger.losses_pairs import log_softmax
from trainledger.ledger.losses_read import returned_dtype
from trainledger.ledger.opening import Job
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward
from trainledger.lines.line import Account
from trainledger.lines.stream import Segment
from trainledger.model.operations import Linear, sides
from trainledger.model.program import Model


def logged(job: Job) -> tuple[Segment, ...]:
    """What is made for the log after all passes."""
    tape, reading = Tape(None, job.run.software.device), job.run.scoring.reading
    assert reading is not None
    tape.scope = "loss"
    whole, read = _logits(tape, job)
    scoring = job.run.scoring
    shown = Shown(whole, read, reading.cut.viewed, scoring.counted, scoring.ranks)
    for one in scoring.last:
        metric(tape, shown, one)
    return _segments(tape, job)


def read_later(job: Job) -> tuple[Segment, ...]:
    """Log-probabilities of further sequences' logits, without a graph."""
    tape = Tape(None, job.run.software.device)
    tape.scope = "loss"
    _, read = _logits(tape, job)
    log_softmax(tape, read, tape.dims[read][0].size > 1)
    return _segments(tape, job)


def _logits(tape: Tape, job: Job) -> tuple[int, int]:
    """Values of the logits as the model hands them out, and of these without the last token's."""
    setting = job.run.setting
    head = _head(job.model)
    dtype = returned_dtype(setting, job.model, setting.autocast or setting.dtype_of(head.weight))
    batch, vocab = Axis(Dim.BATCH, setting.batch), Axis(Dim.VOCAB, sides(head)[1].size)
    found = []
    for size in (setting.sequence, setting.sequence - 1):
        dims: Dims = (batch, Axis(Dim.SEQUENCE, size), vocab)
        found.append(tape.outside(dims, dtype, False))
    return found[0], found[1]


def _head(model: Model) -> Linear:
    """The layer that makes the logits."""
    found = next(op.spec for op in model.head.ops if isinstance(op.spec, Linear) and "logits" in op.outs)
    assert isinstance(found, Linear)
    return found


def _segments(tape: Tape, job: Job) -> tuple[Segment, ...]:
    events = run_forward(tape, frozenset(), False).events
    lines: list[int] = []
    for event in events:
        made = tape.storages[abs(event) - 1]
        line = job.book.storage(Account.LOGITS, made.name, made)
        lines.append(line + 1 if event > 0 else -line - 1)
    return (Segment(REFERENCE, tuple(lines)),) if lines else ()

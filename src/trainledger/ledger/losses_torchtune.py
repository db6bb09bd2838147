"""torchtune's losses on a tape: logits cast to fp32 by the model, or in chunks that the loss casts one by one.

Sources: torchtune/modules/transformer.py, forward; modules/loss/ce_chunked_output_loss.py; recipes/*.py, _loss_step,
which deletes the logits before backward; training/_compile.py, compile_loss: cast and loss of a chunk are one kernel,
which keeps the chunk's 16-bit logits instead of fp32 log-probabilities (2024-11). Older recipes shift and turn the
logits and hold them through backward: recipes/*.py, train (v0.1.0 to v0.2.1).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.torchtune import HEAD_CHUNKS, NAME, Early, early
from trainledger.ledger import aten, layers
from trainledger.ledger.chunked_logits import ONE, Ended, cross_entropy
from trainledger.ledger.cross_entropy import torch_cross_entropy
from trainledger.ledger.frame import Frame
from trainledger.ledger.rules import lower
from trainledger.ledger.software import WHOLE_LOSS
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Linear, Op


def full(frame: Frame, ops: tuple[Op, ...]) -> Ended:
    """The loss over all logits, which are cast to fp32 as the model returns them."""
    tape, version = frame.tape, frame.software.release(NAME)
    lower(frame, ops)
    made = frame.names.pop("logits")
    tape.scope = "logits"
    logits = aten.to(tape, made, FP32)
    tape.end([made])
    bound = len(tape.prims)
    tape.scope = "loss"
    if early(Early.SHIFTS, version):
        loss, named = _shifted(tape, logits)
        if early(Early.HOLDS, version):
            return Ended(loss, (named,), bound)
        tape.end([named])
        return Ended(loss)
    rows = aten.view(tape, logits, (_tokens(tape, logits), tape.dims[logits][-1]))
    losses = _compiled(tape, rows) if WHOLE_LOSS in frame.software.kernels else cross_entropy(tape, rows)
    tape.end([logits, rows])
    return Ended(_sum(tape, losses))


def _shifted(tape: Tape, logits: int) -> tuple[int, int]:
    """The loss of all but the last token's logits, and these by their last name: a copy unless there is but one
    sequence. With the words in the second dim they are no rows, so that log-softmax copies them once more."""
    batch, sequence, vocab = tape.dims[logits]
    fewer = Axis(Dim.SEQUENCE, sequence.size - 1)
    part = aten.part(tape, logits, (batch, fewer, vocab))
    shifted = aten.copy(tape, part) if batch.size > 1 else part
    tape.end([logits, *([part] if shifted != part else [])])
    turned = aten.view(tape, shifted, (batch, vocab, fewer))
    read = aten.copy(tape, turned)
    loss = torch_cross_entropy(tape, read, tape.outside((batch, fewer), INT64, False))
    tape.end([turned, read])
    return loss, shifted


def chunked(frame: Frame, head: Op) -> int:
    """The sum of every chunk's loss."""
    assert isinstance(head.spec, Linear)
    tape, x = frame.tape, frame.names[head.ins[0]]
    batch, sequence, width = tape.dims[x]
    size = -(-sequence.size // HEAD_CHUNKS.count)
    sizes = [min(size, sequence.size - at) for at in range(0, sequence.size, size)]
    tape.scope = head.name
    given = aten.chunk(tape, x, [(batch, Axis(Dim.SEQUENCE, one), width) for one in sizes])
    made = [layers.linear(frame, head.spec, one, head.dims) for one in given]
    tape.scope = "loss"
    losses = []
    for one in made:
        rows = aten.view(tape, one, (_tokens(tape, one), tape.dims[one][-1]))
        losses.append(_sum(tape, _compiled(tape, rows) if frame.software.compiled else _eager(tape, rows)))
    tape.end(made)
    total = losses[0]
    for one in losses[1:]:
        total = aten.add(tape, total, one)
    return aten.scale(tape, total)


def _tokens(tape: Tape, logits: int) -> Axis:
    return Axis(Dim.TOKENS, elements(tape.dims[logits][:-1]))


def _eager(tape: Tape, rows: int) -> int:
    high = aten.to(tape, rows, FP32)
    losses = cross_entropy(tape, high)
    tape.end([high])
    return losses


def _compiled(tape: Tape, rows: int) -> int:
    """One kernel: the logits are kept as they came, with the largest and the sum of each row."""
    each = tape.dims[rows][:1]
    loss = tape.fresh(each, FP32, True, "losses of a chunk")
    kept = [tape.fresh(each, FP32, False, name) for name in ("largest logit", "sum of exponentials")]
    target = tape.fresh(each, INT64, False, "labels of a chunk")
    outs, saves = (loss, *kept, target), (rows, *kept, target)
    return tape.run(Prim("compiled cross-entropy", (rows,), outs, saves, (Step(Code.GRAD, 0),), ()))


def _sum(tape: Tape, losses: int) -> int:
    loss = tape.fresh(ONE, FP32, True, "loss")
    tape.run(Prim("sum", (losses,), (loss,), (), (Step(Code.GRAD, 0),), ()))
    tape.end([losses])
    return loss

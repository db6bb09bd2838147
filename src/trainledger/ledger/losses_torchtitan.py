"""torchtitan's losses on a tape: all logits cast to fp32 by the model or by the loss, or in chunks of tokens.

Sources: torchtitan/train.py, loss_fn and the loop (2024-01 to 2025-03); components/loss.py (2025-03 to 2026-04).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, elements
from trainledger.base.sources import Basis
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.torchtitan import LOSS_CHUNKS, NAME, Change, holds
from trainledger.ledger import aten
from trainledger.ledger.chunked_logits import Ended
from trainledger.ledger.cross_entropy import compiled_cross_entropy, torch_cross_entropy
from trainledger.ledger.frame import Frame
from trainledger.ledger.losses_parallel import SPREAD, parallel_cross_entropy
from trainledger.ledger.rules import lower
from trainledger.ledger.software import WHOLE_LOSS
from trainledger.ledger.tape import Tape
from trainledger.model.program import Op

CHUNKED = "chunked"


def ended(frame: Frame, ops: tuple[Op, ...], how: str) -> Ended:
    """The head and the loss; the caller's name for the logits ends before backward, or, in older versions, with it."""
    tape, version = frame.tape, frame.software.release(NAME)
    lower(frame, ops)
    logits = frame.names.pop("logits")
    if how == CHUNKED and holds(Change.CHUNKED_HEAD, version):
        place = tape.store[logits]
        tape.storages[place] = tape.storages[place]._replace(basis=Basis.ASSUMED)
    if not holds(Change.LOSS_CASTS, version):
        tape.scope = "logits"
        high = aten.to(tape, logits, FP32)
        tape.end([logits])
        logits = high
    tape.scope = "loss"
    compiled = WHOLE_LOSS in frame.software.kernels
    loss = _chunks(tape, logits, compiled) if how == CHUNKED else _whole(tape, logits, compiled, how == SPREAD)
    tape.end([logits])
    return Ended(loss, () if holds(Change.FREES_LOGITS, version) else (logits,))


def _whole(tape: Tape, logits: int, compiled: bool, spread: bool = False) -> int:
    """The loss of these logits, of whatever dtype they are; `spread`: they are this rank's words'."""
    tokens = (Axis(Dim.TOKENS, elements(tape.dims[logits][:-1])),)
    rows = aten.view(tape, logits, (*tokens, tape.dims[logits][-1]))
    if compiled:
        return compiled_cross_entropy(tape, rows)
    high = aten.to(tape, rows, FP32)
    entropy = parallel_cross_entropy if spread else torch_cross_entropy
    loss = entropy(tape, high, tape.outside(tokens, INT64, False))
    tape.end([rows, high])
    return loss


def _chunks(tape: Tape, logits: int, compiled: bool) -> int:
    """The mean of the losses of so many chunks of every sequence's tokens."""
    batch, sequence, vocab = tape.dims[logits]
    size = -(-sequence.size // LOSS_CHUNKS.count)
    sizes = [min(size, sequence.size - at) for at in range(0, sequence.size, size)]
    given = aten.chunk(tape, logits, [(batch, Axis(Dim.SEQUENCE, one), vocab) for one in sizes])
    losses = [_whole(tape, one, compiled) for one in given]
    total = losses[0]
    for one in losses[1:]:
        total = aten.add(tape, total, one)
    tape.end(given)
    return aten.scale(tape, total)

"""The loss of logits that are spread over ranks by words: PyTorch's loss_parallel on a tape.

One node makes log-probabilities of this rank's words, with the largest and the sum over all ranks; backward makes the
gradient of the logits at once, out of a zero-filled tensor, the probabilities, their sum and its product.
Source: torch/distributed/tensor/parallel/loss.py (v2.4 to v2.13).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32, INT64
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Code, Prim, Step, Tape

SPREAD = "vocab-parallel"


def parallel_cross_entropy(tape: Tape, logits: int, target: int) -> int:
    """torch.nn.functional.cross_entropy of one rank's words, of logits in fp32."""
    dims, dtype = tape.dims[logits], tape.dtype[logits]
    shifted = tape.fresh(dims, dtype, False, "logits less the largest")
    tape.run(Prim("sub", (logits,), (shifted,), (), (), ()))
    powers = tape.fresh(dims, dtype, False, "exponentials")
    tape.run(Prim("exp", (shifted,), (powers,), (), (), ()))
    log = tape.fresh(dims, dtype, True, "log-probabilities")
    tape.run(Prim("log_softmax", (logits, shifted), (log,), (log,), (Step(Code.PASS, 0),), ()))
    tape.end([shifted])
    one = (Axis(Dim.ONE, 1),)
    loss, weight = tape.fresh(one, dtype, True, "loss"), tape.fresh(one, dtype, False, "total weight")
    zeros, again, total = (
        aten.temporary(tape, dims, dtype, name) for name in ("target's gradient", "exponentials", "sum of both")
    )
    steps = (
        *(Step(Code.BORN, 0, made) for made in (zeros, again, total)),
        Step(Code.DEAD, 0, again),
        Step(Code.GRAD, 0),
        *(Step(Code.DEAD, 0, made) for made in (total, zeros)),
    )
    return tape.run(Prim("nll_loss", (log, target), (loss, weight), (log, target, weight), steps, ()))


def spread_cross_entropy(frame: Frame) -> int:
    """The loss that a script computes from spread logits, which it lets go of once they are cast to fp32."""
    tape, names = frame.tape, frame.names
    logits = names.pop("logits")
    tape.end([names.pop(name) for name in list(names)])  # the model's forward has returned
    tape.scope = "loss"
    high = aten.to(tape, logits, FP32)
    tape.end([logits])
    loss = parallel_cross_entropy(tape, high, tape.outside(tape.dims[high][:-1], INT64, False))
    tape.end([high])
    return loss

"""torch.nn.functional.cross_entropy over all logits on a tape."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import FP32
from trainledger.ledger import aten
from trainledger.ledger.tape import Code, Prim, Step, Tape


def torch_cross_entropy(tape: Tape, logits: int, target: int) -> int:
    """torch.nn.functional.cross_entropy. It asks log_softmax for the logits' own dtype, which autocast leaves so; then
    autocast casts the result for nll_loss, which runs in fp32."""
    log = tape.fresh(tape.dims[logits], tape.dtype[logits], True, "log-probabilities")
    tape.run(Prim("log_softmax", (logits,), (log,), (log,), (Step(Code.GRAD, 0),), ()))
    dtype = FP32 if tape.autocast is not None else tape.dtype[logits]
    first, log = log, aten.to(tape, log, dtype)
    tape.end([first])
    one = (Axis(Dim.ONE, 1),)
    loss = tape.fresh(one, dtype, True, "loss")
    weight = tape.fresh(one, dtype, False, "total weight")
    tape.run(Prim("nll_loss", (log, target), (loss, weight), (log, target, weight), (Step(Code.GRAD, 0),), ()))
    return loss


def compiled_cross_entropy(tape: Tape, logits: int) -> int:
    """The cast to fp32 and the loss as one kernel each way: the logits are kept as they came, with the largest and the
    sum of each row. What the caller handed in is no buffer that backward may write its gradient over.

    Source: torch/_functorch/_aot_autograd, collect_bw_donated_buffer_idxs (v2.6 to v2.13).
    """
    each = (Axis(Dim.TOKENS, elements(tape.dims[logits][:-1])),)
    one = (Axis(Dim.ONE, 1),)
    loss = tape.fresh(one, FP32, True, "loss")
    kept = [tape.fresh(each, FP32, False, name) for name in ("largest logit", "sum of exponentials")]
    outs, saves = (loss, *kept), (logits, *kept)
    return tape.run(Prim("compiled cross-entropy", (logits,), outs, saves, (Step(Code.GRAD, 0),), ()))

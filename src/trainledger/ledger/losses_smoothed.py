"""The Trainer's loss with smoothed labels on a tape: of each token the log-probability of its label and the sum of all
words'.

Log-probabilities have their sign turned, which makes a second tensor of the logits' size; autograd keeps both, the
second since picking labels saves what it reads. Of the sum nothing of that size is saved; its gradient is one number a
token, which a sum in another dtype has to write out.
Source: transformers/trainer_pt_utils.py, LabelSmoother (4.40.2 to 5.24.0); torch derivatives.yaml, gather and
sum.dim_IntList (v2.13).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BOOL, FP32, INT64
from trainledger.ledger import aten
from trainledger.ledger.losses_pairs import log_softmax
from trainledger.ledger.tape import Code, Prim, Step, Tape


def smoothed(t: Tape, read: int) -> list[int]:
    """The loss of each token over these logits; then what the function names until it returns."""
    one = (*t.dims[read][:-1], Axis(Dim.ONE, 1))
    log = aten.unary(t, "neg", log_softmax(t, read))
    masked, labels = (
        t.run(Prim(kind, (), (t.fresh(one, dtype, False, name),), (), (), ()))
        for kind, dtype, name in (("eq", BOOL, "tokens that do not count"), ("clamp", INT64, "labels"))
    )
    grad, dtype = t.grad[read], t.dtype[read]
    picked = t.fresh(one, dtype, grad, "log-probability of each label")
    saves = (log, labels, masked) if grad else ()
    t.run(Prim("gather", (log, labels, masked), (picked,), saves, aten.GRAD0, ()))
    sums = t.fresh(one, FP32, grad, "sum of each token's log-probabilities")
    spread = Step(Code.SEEN, 0) if dtype == FP32 else Step(Code.GRAD, 0)
    t.run(Prim("sum", (log, masked), (sums,), (masked,) if grad else (), (spread,), ()))
    each = t.fresh(one, FP32, grad, "smoothed loss of each token")
    loss = t.run(Prim("add", (picked, sums), (each,), (), aten.gradients(t, (picked, sums), one, FP32), ()))
    return [loss, log, labels, masked, picked, sums]

"""The loss of TRL's GKD on a tape: a Jensen-Shannon divergence over the whole vocabulary of student and teacher.

Source: trl/experimental/gkd/gkd_trainer.py, compute_loss, generalized_jsd_loss (1.16.0); torch kl_div with log_target,
which is exp(target) * (target - input), each an operation of its own, and logsumexp, which saves its input and result.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32, INT64
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.losses_pairs import log_softmax
from trainledger.ledger.tape import Code, Prim, Step, Tape

BOTH = Axis(Dim.SLOTS, len(("student", "teacher")))


def distilled(frame: Frame, counted: int) -> int:
    """The loss over the student's logits bound in the frame and as many of the teacher's; `counted`: tokens of each
    sequence that count (0: all but the last). Under autocast logits are in fp32, as accelerate hands them out."""
    t, names = frame.tape, frame.names
    t.scope = "logits"
    dtype = FP32 if t.autocast is not None else t.dtype[names["logits"]]
    student = names["logits"] = aten.to(t, names["logits"], dtype)
    whole = t.dims[student]
    t.scope = "teacher's logits"
    teacher = t.run(Prim("teacher", (), (t.fresh(whole, dtype, False),), (), (), ()))
    t.scope = "loss"
    dims = (whole[0], Axis(Dim.SEQUENCE, whole[1].size - 1), whole[2])
    cut = [aten.scale(t, aten.part(t, one, dims)) for one in (student, teacher)]
    logs = [log_softmax(t, one) for one in cut]
    mixture = _mixed(t, logs)
    parts = [_divergence(t, mixture, one) for one in reversed(logs)]
    first, second = (aten.scale(t, one, "weighted") for one in parts)
    total = aten.add(t, first, second)
    loss = _sum(t, _masked(t, total, counted))
    t.end([student, teacher, *cut, *logs, mixture, *parts])
    return loss


def _mixed(t: Tape, logs: list[int]) -> int:
    """The logarithm of the mean of both: shifted copies, stacked, then logsumexp."""
    both = aten.cat(t, [aten.shift(t, one) for one in logs], (BOTH, *t.dims[logs[0]]), "stacked")
    out = t.fresh(t.dims[logs[0]], t.dtype[both], True, "logarithm of the mixture")
    wide = [aten.temporary(t, t.dims[both], t.dtype[both], f"{name} of the stack") for name in ("shifted", "weights")]
    born, dead = ([Step(code, 0, one) for one in wide] for code in (Code.BORN, Code.DEAD))
    return t.run(Prim("logsumexp", (both,), (out,), (both, out), (*born, Step(Code.GRAD, 0), *dead), ()))


def _divergence(t: Tape, mixture: int, target: int) -> int:
    """exp(target) * (target - mixture)."""
    weights = aten.unary(t, "exp", target, saves_out=True)
    return aten.mul(t, weights, aten.sub(t, target, mixture), "divergence")


def _masked(t: Tape, x: int, counted: int) -> int:
    """The rows of tokens that count; backward writes them into zeros."""
    rows = elements(t.dims[x][:-1])
    kept = min(counted * t.dims[x][0].size, rows) if counted else rows
    tokens = (Axis(Dim.TOKENS, kept),)
    out = t.fresh((*tokens, t.dims[x][-1]), t.dtype[x], t.grad[x], "divergences that count")
    places = [t.fresh(tokens, INT64, False, "places of tokens that count") for _ in t.dims[x][:-1]]
    return t.run(Prim("index", (x,), (out, *places), tuple(places), aten.GRAD0, ()))


def _sum(t: Tape, x: int) -> int:
    one: Dims = (Axis(Dim.ONE, 1),)
    return t.run(Prim("sum", (x,), (t.fresh(one, FP32, True, "loss"),), (), aten.GRAD0, ()))

"""Losses over chosen and rejected sequences, or over single ones, as ColossalChat's trainers write them.

The model returns fp32 logits of both, of which each half is a slice; of every half without its last token the
log-probabilities are made and one of each row is picked. Source: the row in facts/colossal.py.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.colossal import PAIR_LOSS
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.preferences import PAIR
from trainledger.ledger import aten
from trainledger.ledger.tape import Code, Prim, Step, Tape

CHOSEN = "chosen logits"


def pair_loss(t: Tape, names: dict[str, int], task: str) -> int:
    """The loss of this task over the logits bound in `names`, where what the trainer names besides is bound."""
    t.scope = "logits"
    logits = names["logits"] = aten.to(t, names["logits"], FP32)
    t.scope = "loss"
    batch, sequence, vocab = t.dims[logits]
    parts = len(PAIR) if task not in PAIR_LOSS.single else 1
    half: Dims = (Axis(batch.dim, batch.size // parts), sequence, vocab)
    both = [sliced(t, logits, half) for _ in range(parts)] if parts > 1 else [logits]
    fewer = (half[0], Axis(Dim.SEQUENCE, sequence.size - 1), vocab)
    sums = [_picked(t, one, fewer) for one in both]
    likelihood = _likelihood(t, names, sliced(t, both[0], fewer)) if task == PAIR_LOSS.likelihood else None
    margin = _small(t, "logsigmoid", _small(t, "sub", *sums))
    loss = margin if likelihood is None else _small(t, "sub", likelihood, margin)
    t.end([*both, *sums, logits, *([names[CHOSEN]] if CHOSEN in names else [])])
    return loss


def _picked(t: Tape, logits: int, dims: Dims) -> int:
    """The sum of the log-probabilities of a sequence's own tokens, where they count."""
    read = sliced(t, logits, dims)
    log = log_softmax(t, read, dims[0].size > 1)
    one = (*dims[:-1], Axis(Dim.ONE, 1))
    index = t.outside(one, INT64, False)
    grad = t.grad[logits]
    picked = t.fresh(one, FP32, grad, "log-probability of each token")
    t.run(Prim("gather", (log, index), (picked,), (index,) if grad else (), aten.GRAD0, ()))
    masked = aten.mul(t, picked, t.outside(one, INT64, False), "masked")
    return _small(t, "sum", masked)


def log_softmax(t: Tape, x: int, copies: bool = False) -> int:
    """Log-probabilities, which are saved. The kernel reads a copy where rows of several sequences are cut
    (aten/src/ATen/native/cuda/SoftMax.cu)."""
    dims, dtype = t.dims[x], t.dtype[x]
    log = t.fresh(dims, dtype, t.grad[x], "log-probabilities")
    work = (aten.temporary(t, dims, dtype, "log-softmax kernel: contiguous logits"),) if copies else ()
    return t.run(Prim("log_softmax", (x,), (log,), (log,) if t.grad[x] else (), aten.GRAD0, work))


def _likelihood(t: Tape, names: dict[str, int], cut: int) -> int:
    """Cross-entropy of the chosen sequences over a copy of their logits, which the trainer names; of one sequence they
    are contiguous as they are."""
    dims = t.dims[cut]
    if dims[0].size > 1:
        copied = names[CHOSEN] = t.fresh(dims, FP32, True, "copy of the chosen logits")
        cut = t.run(Prim("clone", (cut,), (copied,), (), aten.PASS0, ()))
    log = log_softmax(t, cut)
    target, one = t.outside(dims[:-1], INT64, False), (Axis(Dim.ONE, 1),)
    loss, weight = t.fresh(one, FP32, True, "likelihood"), t.fresh(one, FP32, False, "total weight")
    t.run(Prim("nll_loss", (log, target), (loss, weight), (log, target, weight), aten.GRAD0, ()))
    t.end([log])
    return loss


def sliced(t: Tape, x: int, dims: Dims) -> int:
    """A part of x: backward writes its gradient into zeros of x's size."""
    return t.run(Prim("slice", (x,), (t.alias(x, dims),), (), aten.GRAD0, ()))


def _small(t: Tape, kind: str, *ins: int) -> int:
    """One number of others, each of which gets a gradient of its own size."""
    out = t.fresh((Axis(Dim.ONE, 1),), FP32, any(t.grad[value] for value in ins), kind)
    return t.run(Prim(kind, ins, (out,), (), tuple(Step(Code.GRAD, at) for at in range(len(ins))), ()))

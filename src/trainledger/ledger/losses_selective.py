"""Log-probabilities of tokens out of all logits, as TRL's trainers took them before their heads were fused.

Rows of a batch one by one: in fp32 the picked logit less the row's logsumexp, which saves the logits; in 16 bits a
log-softmax of each row, which saves itself. One kernel since 1.14.
Source: trl/trainer/utils.py, selective_log_softmax (0.15 to 1.13); trl/kernels/logprob_entropy.py (1.14); torch
logsumexp_backward, unbind's backward, which stacks the rows' gradients.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, INT64
from trainledger.ledger import aten
from trainledger.ledger.tape import Code, Prim, Step, Tape


def by_rows(t: Tape, x: int) -> int:
    """The log-probability of each token, rows of the batch one by one."""
    return _picked(t, x) if t.dtype[x] == FP32 else _rows(t, x)


def _row(t: Tape, x: int) -> Dims:
    return t.dims[x][1:]


def _by_rows(t: Tape, x: int, saved: int | None) -> tuple[Step, ...]:
    """Gradients of the rows, two temporaries of a row's size at a time, all of which are then stacked. `saved`: what
    dies row by row as its gradients come, a row's after both of its own are there: the last row has the most."""
    rows = aten.temporary(t, t.dims[x], t.dtype[x], "gradients of the rows")
    work = [aten.temporary(t, _row(t, x), t.dtype[x], "a row in backward") for _ in range(len(("first", "second")))]
    born, dead = ([Step(code, 0, one) for one in work] for code in (Code.BORN, Code.DEAD))
    made = (Step(Code.BORN, 0, rows), *born, *dead)
    if saved is not None:
        made = (*born, *dead, Step(Code.CLEAR, 0, saved), Step(Code.BORN, 0, rows))
    return (*made, Step(Code.GRAD, 0), Step(Code.DEAD, 0, rows))


def _picked(t: Tape, x: int) -> int:
    """The picked logits less each row's logsumexp."""
    grad, one = t.grad[x], (*t.dims[x][:-1], Axis(Dim.ONE, 1))
    index = t.outside(one, INT64, False)
    chosen = t.fresh(one, FP32, grad, "picked logits")
    t.run(Prim("gather", (x, index), (chosen,), (index,) if grad else (), aten.GRAD0, ()))
    sums = t.fresh(one, FP32, grad, "logsumexp of each token")
    work = aten.temporary(t, _row(t, x), t.dtype[x], "exponentials of a row")
    steps = _by_rows(t, x, None)  # a difference and its exponential
    t.run(Prim("logsumexp by row", (x,), (sums,), (x, sums) if grad else (), steps, (work,)))
    return aten.sub(t, chosen, sums)


def _rows(t: Tape, x: int) -> int:
    """A log-softmax of each row, of which tokens are picked. Without a graph a row's goes as the next one's is made."""
    one = (*t.dims[x][:-1], Axis(Dim.ONE, 1))
    out = t.fresh(one, t.dtype[x], t.grad[x], "log-probability of each token")
    if not t.grad[x]:
        rows = range(min(t.dims[x][0].size, len(("this one", "the last one, which its name still holds"))))
        work = tuple(aten.temporary(t, _row(t, x), t.dtype[x], "log-probabilities of a row") for _ in rows)
        return t.run(Prim("log_softmax by row", (x,), (out,), (), (), work))
    log = t.fresh(t.dims[x], t.dtype[x], True, "log-probabilities")
    steps = _by_rows(t, x, t.store[log])  # zeros that the picked are put in, and the gradient
    t.run(Prim("log_softmax by row", (x,), (log,), (log,), steps, ()))
    return t.run(Prim("pick", (log,), (out,), (), (Step(Code.PASS, 0),), ()))


def by_kernel(t: Tape, x: int) -> int:
    """One kernel: it saves the logits and two numbers of each token; backward makes the logits' gradient."""
    tokens = t.dims[x][:-1]
    out = t.fresh(tokens, FP32, t.grad[x], "log-probability of each token")
    rest = [t.fresh(tokens, FP32, False, name) for name in ("entropy", "logsumexp", "expected logit")]
    saves = (x, *rest[1:]) if t.grad[x] else ()
    t.run(Prim("log-probabilities and entropy", (x,), (out, *rest), saves, aten.GRAD0, ()))
    return out

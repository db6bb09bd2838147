"""Losses between distributions in published benchmarks: KL divergence, Jensen-Shannon divergence, total variation
distance; and softmax by itself.

Each is measured on the result of a softmax of a leaf, whose graph is kept: backward runs through it into the leaf.
Sources: liger_kernel/ops/{kl_div,jsd,tvd,softmax}.py and benchmark/scripts/benchmark_{kl_div,jsd,tvd,softmax}.py at
the commits that added the measurements (a307eac8, 8e2f3a47, 8ef203a4, 5c9cecc8, 5d25e468); aten/src/ATen/native/
Loss.cpp, kl_div.
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32
from trainledger.facts.operator_losses import DISTRIBUTIONS
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.operator_tools import SCALAR, entry, passing, several
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.lines.kernel_work import whole_sum


def total(t: Tape, x: int) -> int:
    """The sum of all elements, with the partial sums that blocks of its kernel share; the gradient is a view."""
    partial = whole_sum(elements(t.dims[x]), t.dtype[x], t.device)
    work: tuple[int, ...] = ()
    if partial:
        work = (*several(t, (Axis(Dim.ELEMENTS, partial),), FP32, "partial sums"), *several(t, SCALAR, FP32, "counter"))
    out = t.fresh(SCALAR, t.dtype[x], t.grad[x], "sum")
    return t.run(Prim("sum", (x,), (out,), (), (Step(Code.SEEN, 0),), work))


def lerp(t: Tape, start: int, end: int) -> int:
    """torch.lerp with a number as its weight: saves nothing."""
    out = t.fresh(t.dims[start], t.dtype[start], t.grad[start] or t.grad[end], "mixture")
    return t.run(Prim("lerp", (start, end), (out,), (), (Step(Code.GRAD, 0), Step(Code.GRAD, 1)), ()))


def kl_of_logs(t: Tape, x: int, target: int) -> int:
    """torch.kl_div of log-probabilities, each element's: exp(target) * (target - x)."""
    difference = aten.sub(t, target, x)
    return aten.mul(t, aten.unary(t, "exp", target, saves_out=True), difference)


def _batch_mean(t: Tape, x: int) -> int:
    return aten.scale(t, total(t, x))


def _distributions(run: OperatorRun, logs: bool) -> tuple[Tape, int, int, int]:
    """The leaf, what a softmax (or its logarithm) made of it before, and a target, all in fp32."""
    t = run.tape()
    sizes = (("BT",), ("vocab_size",)) if "BT" in run.shape else (("B", "T"), ("V",))
    dims: Dims = (Axis(Dim.TOKENS, run.size(*sizes[0])), Axis(Dim.VOCAB, run.size(*sizes[1])))
    leaf = entry(t, "leaf", dims, run.element)
    x, target = (entry(t, name, dims, run.element, name == "input") for name in ("input", "target"))
    # CUDA's softmax backward also makes gradient x result (SoftMax.cu)
    product = () if logs else passing(*several(t, dims, run.element, "softmax kernel: gradient times result"))
    t.run(Prim("softmax", (leaf,), (x,), (), (Step(Code.GRAD, 0), *product), ()))
    return t, leaf, x, target


def _written(t: Tape, leaf: int, loss: int) -> Written:
    size = t.dtype[leaf].bytes_of(elements(t.dims[leaf]))
    return Written(t, (leaf,), (), (loss,), (size, size))


def torch_kl_div(run: OperatorRun) -> Written:
    """KLDivLoss of probabilities: xlogy(target, target) - target * input, summed and divided."""
    t, leaf, x, target = _distributions(run, True)
    product = aten.mul(t, target, x)
    whole = aten.sub(t, aten.unary(t, "xlogy", target), product)
    t.end([product])
    return _written(t, leaf, _batch_mean(t, whole))


def liger_kl_div(run: OperatorRun) -> Written:
    """Sums of rows; backward writes over the input itself and divides that into a new tensor."""
    t, leaf, x, target = _distributions(run, True)
    rows = t.fresh(t.dims[x][:1], FP32, True, "loss of each row")
    t.run(Prim("kl divergence", (x, target), (rows,), (), aten.GRAD0, ()))
    return _written(t, leaf, _batch_mean(t, rows))


def torch_jsd(run: OperatorRun) -> Written:
    """Both divergences from the mixture; newer baselines take its logarithm twice and sum by rows."""
    t, leaf, x, target = _distributions(run, True)
    if at_least(run.release, DISTRIBUTIONS.rows_since):
        mixture = lerp(t, *(aten.unary(t, "exp", one, saves_out=True) for one in (x, target)))
        losses = [_rows(t, kl_of_logs(t, aten.unary(t, "log", mixture, saves_in=True), one)) for one in (target, x)]
        t.end([mixture])
        return _written(t, leaf, total(t, aten.scale(t, aten.add(t, losses[0], losses[-1]))))
    first, second = (aten.unary(t, "exp", one, saves_out=True) for one in (x, target))
    summed = aten.add(t, first, second)
    mixture = aten.scale(t, summed)
    t.end([summed])
    log = aten.unary(t, "log", mixture, saves_in=True)
    losses = [_batch_mean(t, kl_of_logs(t, log, one)) for one in (x, target)]
    loss = aten.scale(t, aten.add(t, losses[0], losses[-1]))
    t.end([mixture, log])
    return _written(t, leaf, loss)


def _rows(t: Tape, x: int) -> int:
    """Sums of rows, weighted by a number."""
    out = t.fresh(t.dims[x][:-1], t.dtype[x], t.grad[x], "sums of rows")
    return aten.scale(t, t.run(Prim("sum", (x,), (out,), (), (Step(Code.SEEN, 0),), ())))


def _made_ahead(t: Tape, x: int, losses: int, handed_on: bool) -> int:
    """A kernel that makes the gradient in forward; backward hands it on, or multiplies it into a new tensor."""
    gradient = t.fresh(t.dims[x], t.dtype[x], False, "gradient made in forward")
    step = Step(Code.TURN, 0, t.store[gradient]) if handed_on else Step(Code.GRAD, 0)
    t.run(Prim("loss and gradient", (x,), (losses, gradient), (gradient,), (step,), ()))
    return gradient


def liger_jsd(run: OperatorRun) -> Written:
    """The loss of every element and the gradient, both made in forward."""
    t, leaf, x, _ = _distributions(run, True)
    losses = t.fresh(t.dims[x], FP32, True, "loss of each element")
    # a gradient other than 1 is multiplied in
    gradient = _made_ahead(t, x, losses, not at_least(run.release, DISTRIBUTIONS.drawn_since))
    loss = total(t, losses)
    if not at_least(run.release, DISTRIBUTIONS.divided_until):
        loss = aten.scale(t, loss)
    t.end([losses, gradient])
    return _written(t, leaf, loss)


def torch_tvd(run: OperatorRun) -> Written:
    """|p - q| / 2, summed and divided."""
    t, leaf, x, target = _distributions(run, False)
    halved = aten.scale(t, _absolute(t, aten.sub(t, x, target)))
    loss = _batch_mean(t, halved)
    t.end([halved])
    return _written(t, leaf, loss)


def _absolute(t: Tape, x: int) -> int:
    """abs: saves its input; backward makes its sign."""
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "absolute")
    (sign,) = several(t, t.dims[x], t.dtype[x], "sign")
    steps = (Step(Code.BORN, 0, sign), Step(Code.GRAD, 0), Step(Code.DEAD, 0, sign))
    return t.run(Prim("abs", (x,), (out,), (x,), steps, ()))


def liger_tvd(run: OperatorRun) -> Written:
    """Sums of rows and the gradient, both made in forward."""
    t, leaf, x, _ = _distributions(run, False)
    rows = t.fresh(t.dims[x][:1], FP32, True, "loss of each row")
    gradient = _made_ahead(t, x, rows, True)
    loss = total(t, rows)
    t.end([rows, gradient])
    return _written(t, leaf, loss)


def softmax(run: OperatorRun) -> Written:
    """One row of N elements: the script hands the sweep's value to torch.randn as the whole shape."""
    t = run.tape()
    x = entry(t, "x", (Axis(Dim.VOCAB, run.size("N")),), run.element)
    if run.implementation == "torch":
        return Written(t, (x,), (), (aten.softmax(t, x, run.element),))
    out = t.fresh(t.dims[x], run.element, True, "softmax")
    t.run(Prim("liger softmax", (x,), (out,), (out,), aten.GRAD0, ()))
    return Written(t, (x,), (), (out,))


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("kl_div", "torch"): torch_kl_div,
    ("kl_div", "liger"): liger_kl_div,
    ("jsd", "torch"): torch_jsd,
    ("jsd", "liger"): liger_jsd,
    ("tvd", "torch"): torch_tvd,
    ("tvd", "liger"): liger_tvd,
    ("softmax", "torch"): softmax,
    ("softmax", "liger"): softmax,
}

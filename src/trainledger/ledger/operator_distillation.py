"""A student's head learning from a teacher's, with a hard and a soft loss, in Liger's benchmark: whole, or by chunks.

Sources: `COMPILED_DISTILLATION`, the code as of the measurement, which is older than the release that first had it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.operator_losses import COMPILED_DISTILLATION
from trainledger.facts.operator_runs import HARNESSES
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.cross_entropy import torch_cross_entropy
from trainledger.ledger.nn import flat_linear
from trainledger.ledger.operator_chunks import compiled, handed_on, joined, sizes
from trainledger.ledger.operator_losses import kl_of_logs, total
from trainledger.ledger.operator_tools import SCALAR, entry, parameter, payloads
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Prim, Tape

HEADS = ("student's", "teacher's")
COPIES = ("drawn", "of the other implementation")  # of the student's hidden states, besides those that are trained on


class Inputs(NamedTuple):
    """Hidden states and head's weight of the student, of the teacher, and the targets."""

    states: int
    weight: int
    seen: int
    teacher: int
    target: int


def inputs_of(run: OperatorRun, wider: int, trains: bool) -> tuple[Tape, Inputs]:
    """A tape with these inputs: the teacher's hidden states are `wider` times as wide as the student's; `trains`: its
    head has a gradient too."""
    t = run.tape()
    tokens, vocab = Axis(Dim.TOKENS, run.size("BT")), Axis(Dim.VOCAB, run.size("V"))
    wide = Axis(Dim.HIDDEN, run.size("H"))
    narrow = Axis(Dim.HIDDEN, wide.size // wider)
    states = entry(t, "student", (tokens, narrow), run.element)
    seen = entry(t, "teacher", (tokens, wide), run.element, False)
    weight = parameter(t, "student.weight", (vocab, narrow), run.element)
    name, dims = "teacher.weight", (vocab, wide)
    teacher = parameter(t, name, dims, run.element) if trains else entry(t, name, dims, run.element, False)
    return t, Inputs(states, weight, seen, teacher, entry(t, "loss", (tokens,), INT64, False))


def _inputs(run: OperatorRun) -> tuple[Tape, Inputs]:
    """Raises ValueError for a release whose code is not the measured one."""
    if run.release and at_least(run.release, COMPILED_DISTILLATION.until):
        raise ValueError(f"distill_jsd_loss: known before Liger {COMPILED_DISTILLATION.until}, not for {run.release}")
    return inputs_of(run, COMPILED_DISTILLATION.teacher, True)


def _given(run: OperatorRun, t: Tape, ins: Inputs) -> list[int]:
    """What the process holds besides: the other hidden states and targets, biases that the loss is not handed, and what
    the sweep's compiled calls left behind."""
    given = payloads(t, ins.seen, ins.target, *(ins.states for _ in COPIES))
    if run.shape["bias"]:
        given += [run.element.bytes_of(run.size("V"))] * len(HEADS) * HARNESSES[run.operator].modules
    for tokens in COMPILED_DISTILLATION.left:
        given += payloads(t, ins.weight, ins.weight, ins.teacher)  # the first twice: its gradient, made in forward
        for value in (ins.states, ins.states, ins.seen, ins.target):
            given.append(t.dtype[value].bytes_of(tokens * elements(t.dims[value][1:])))
        given.append(FP32.bytes_of(1))
    return given


def whole(run: OperatorRun) -> Written:
    """The baseline: all logits in fp32, and the divergence of their softmax from the mean of both; both heads are
    trained."""
    t, ins = _inputs(run)
    dims: Dims = (t.dims[ins.states][0], t.dims[ins.weight][0])
    low = [flat_linear(t, x, dims, weight) for x, weight in ((ins.states, ins.weight), (ins.seen, ins.teacher))]
    logits = [aten.to(t, one, FP32) for one in low]
    hard = torch_cross_entropy(t, aten.rows(t, logits[0]), ins.target)
    t.end(low)
    soft = _divergence(t, logits)
    loss = aten.add(t, aten.scale(t, hard), aten.scale(t, soft))
    t.end([*logits, hard, soft])
    weights = (ins.weight, ins.teacher)
    return Written(t, (ins.states,), weights, (loss,), tuple(_given(run, t, ins)), products=True)


def _divergence(t: Tape, logits: list[int]) -> int:
    """Half the sum of both divergences from the mean of two softmaxes."""
    tempered = [aten.scale(t, one) for one in logits]
    shares = [aten.softmax(t, one, FP32) for one in tempered]
    mean = aten.scale(t, aten.add(t, shares[0], shares[-1]))
    log = aten.unary(t, "log", mean, saves_in=True)
    parts = []
    for one in shares:
        target = aten.unary(t, "log", one, saves_in=True)
        parts.append(aten.scale(t, total(t, kl_of_logs(t, log, target))))
        t.end([target])
    out = aten.scale(t, aten.add(t, parts[0], parts[-1]))
    t.end([*tempered, *shares, log, *parts])
    return out


def chunked(run: OperatorRun) -> Written:
    """Liger's: a compiled function makes loss and gradients of some tokens at a time, in forward."""
    t, ins = _inputs(run)
    gradient = t.fresh(t.dims[ins.weight], run.element, False, "gradient of the head")
    loss = t.fresh(SCALAR, FP32, True, "sum of losses")
    t.run(Prim("zeros", (), (gradient, loss), (), (), ()))
    chunks = sizes(t.dims[ins.states][0].size, COMPILED_DISTILLATION.chunk)
    made = [_chunk(t, ins, size, gradient) for size in chunks]
    gradients = ((ins.states, joined(t, ins.states, made)), (ins.weight, gradient))
    result = handed_on(t, loss, gradients, names=made)
    # both modules' teachers, which have no gradients here
    given = (*payloads(t, *[ins.teacher] * HARNESSES[run.operator].modules), *_given(run, t, ins))
    return Written(t, (ins.states,), (ins.weight,), (result,), given, products=True)


def _chunk(t: Tape, ins: Inputs, size: int, gradient: int) -> int:
    """The compiled program of some tokens: adds to the head's gradient, returns that of their states."""
    tokens, vocab, dtype = Axis(Dim.TOKENS, size), t.dims[ins.weight][0], t.dtype[ins.weight]
    rows: Dims = (tokens, vocab)

    made = partial(compiled, t)
    logits = made("mm", (ins.states, ins.weight), t.fresh(rows, dtype, False, "student's logits"))
    scattered = made("scatter", (ins.target,), t.fresh(rows, FP32, False, "gradient of log-probabilities"))
    counts = [t.fresh(SCALAR, INT64, False, "labels that count") for _ in ("in the hard", "in the soft loss")]
    made("count", (ins.target,), *counts)
    seen = made("mm", (ins.seen, ins.teacher), t.fresh(rows, dtype, False, "teacher's logits"))
    shares = [t.fresh(rows, dtype, False, name) for name in ("gradient of the mean", "gradient of the softmax")]
    sums = [t.fresh((tokens,), FP32, False, f"{name} divergence") for name in ("student's", "teacher's")]
    logs = [t.fresh(rows, FP32, False, name) for name in ("log-probabilities", "gradient of the first logarithm")]
    low = t.fresh(rows, dtype, False, "gradient of logits")
    # one kernel writes and reads what lies between its passes over the vocabulary
    made("losses and gradients", (logits, scattered, seen, *counts), low, logs[0], *sums, logs[-1], *shares)
    result = made("mm", (low, ins.weight), t.fresh((tokens, t.dims[ins.weight][1]), dtype, False, "states' gradient"))
    head = made("mm", (low, ins.states), t.fresh(t.dims[ins.weight], dtype, False, "gradient of the head from a chunk"))
    t.end([logs[0], *sums, *counts])  # for the sum of the losses
    made("add_", (gradient, head), t.alias(gradient))
    return result


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("distill_jsd_loss", "torch"): whole,
    ("distill_jsd_loss", "liger"): chunked,
}

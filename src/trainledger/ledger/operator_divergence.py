"""A student's and a teacher's heads with the Jensen-Shannon divergence between them: apart, or fused by chunks.

Sources: liger_kernel/ops/fused_linear_jsd.py and benchmark/scripts/benchmark_fused_linear_jsd.py, TorchLMHeadJSD, at
the commit that added its measurements (ff6650bb).
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.facts.operator_losses import FUSED_DIVERGENCE
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.fused_head import Shape, chunk_of
from trainledger.ledger.losses_pairs import log_softmax
from trainledger.ledger.nn import flat_linear
from trainledger.ledger.operator_losses import kl_of_logs, lerp, total
from trainledger.ledger.operator_tools import ONE, entry, parameter, payloads
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape

Pair = tuple[int, int]  # of the student, of the teacher


def _inputs(run: OperatorRun) -> tuple[Tape, Pair, Pair]:
    """Hidden states and weights; both modules hold the same storages."""
    t = run.tape()
    tokens, hidden = Axis(Dim.TOKENS, run.size("BT")), Axis(Dim.HIDDEN, run.size("H"))
    x, teacher = (entry(t, name, (tokens, hidden), run.element, name == "student") for name in ("student", "teacher"))
    head = (Axis(Dim.VOCAB, run.size("V")), hidden)
    weights = (parameter(t, "student.weight", head, run.element), parameter(t, "teacher.weight", head, run.element))
    t.scope = "divergence"
    return t, (x, teacher), weights


def apart(run: OperatorRun) -> Written:
    """Logits, log-probabilities in their dtype, then all in fp32; the teacher's head is trained too."""
    t, states, weights = _inputs(run)
    dims: Dims = (t.dims[states[0]][0], t.dims[weights[0]][0])
    logits = [flat_linear(t, x, dims, weight) for x, weight in zip(states, weights, strict=True)]
    logs = [log_softmax(t, aten.scale(t, one)) for one in logits]
    teacher, student = (aten.to(t, one, FP32) for one in reversed(logs))
    mixture = lerp(t, *(aten.unary(t, "exp", one, saves_out=True) for one in (teacher, student)))
    losses = []
    for one in (teacher, student):
        log = aten.unary(t, "log", mixture, saves_in=True)
        summed = total(t, kl_of_logs(t, log, one))
        t.end([log])
        losses.append(aten.scale(t, aten.scale(t, summed)))
    loss = aten.to(t, aten.add(t, losses[0], losses[-1]), run.element)
    t.end([*logits, *logs, teacher, student, mixture])
    return Written(t, states[:1], weights, (loss,), tuple(payloads(t, states[1])), products=True)


def fused(run: OperatorRun) -> Written:
    """Liger's: the loss of every element in fp32, gradients of the student's states and weight made in forward.

    Raises ValueError for a release whose code is not the measured one.
    """
    if run.release and at_least(run.release, FUSED_DIVERGENCE.until):
        raise ValueError(f"fused_linear_jsd: known before Liger {FUSED_DIVERGENCE.until}, not for {run.release}")
    t, states, weights = _inputs(run)
    (tokens, hidden), (vocab, _) = t.dims[states[0]], t.dims[weights[0]]
    kept = [
        t.fresh(t.dims[value], run.element, False, name)
        for value, name in ((weights[0], "gradient of the head"), (states[0], "gradient of the states"))
    ]
    losses = t.fresh((tokens, vocab), FP32, True, "loss of each element")
    t.run(Prim("zeros", (), (*kept, losses), (), (), ()))
    size = chunk_of(Shape(tokens.size, hidden, vocab, run.element))
    names: dict[str, int] = {}
    for start in range(0, tokens.size, size):
        _chunk(t, names, min(size, tokens.size - start), (hidden, vocab))
    loss = aten.to(t, total(t, losses), run.element)
    steps = tuple(Step(Code.TURN, at, t.store[value]) for at, value in enumerate(kept))
    result = t.alias(loss)
    t.run(Prim("fused linear divergence", (weights[0], states[0], loss), (result,), tuple(kept), steps, ()))
    t.end([*kept, losses, *names.values()])
    given = tuple(payloads(t, states[1], weights[1]))
    return Written(t, states[:1], weights[:1], (result,), given, products=True)


def _chunk(t: Tape, names: dict[str, int], size: int, widths: tuple[Axis, Axis]) -> None:
    """One chunk of tokens. Names hold the chunk before until they are bound anew."""
    rows, (hidden, vocab) = Axis(Dim.TOKENS, size), widths
    dtype = t.dtype[0]

    def made(kind: str, ins: tuple[int, ...], width: Axis = vocab) -> int:
        return t.run(Prim(kind, ins, (t.fresh((rows, width), dtype, False, kind),), (), (), ()))

    def bound(name: str, value: int) -> None:
        if name in names:
            t.end([names[name]])
        names[name] = value

    for kind in ("mm", "scaled"):
        for name in ("student's logits", "teacher's logits"):
            bound(name, made(kind, () if kind == "mm" else (names[name],)))
    for name in ("student", "teacher"):
        bound(name, made("log_softmax", (names[f"{name}'s logits"],)))
    # the kernel writes the log-probabilities' gradient over the student's
    weights = made("softmax", (names["student's logits"],))
    share = made("sum", (names["student"],), ONE)
    difference = made("sub", (names["student"], made("mul", (weights, share))))
    bound("student's logits", made("scaled", (difference,)))
    made("mm", (names["student's logits"],), hidden)


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("fused_linear_jsd", "torch"): apart,
    ("fused_linear_jsd", "liger"): fused,
}

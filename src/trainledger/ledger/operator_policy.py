"""Heads with a policy's loss over completions (GRPO, GSPO) beside a reference's head, in Liger's benchmark: whole, or
by chunks.

Sources: `COMPILED_POLICY`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.operator_losses import COMPILED_POLICY
from trainledger.facts.operator_runs import HARNESSES
from trainledger.ledger import aten
from trainledger.ledger.losses_pairs import log_softmax
from trainledger.ledger.nn import linear
from trainledger.ledger.operator_chunks import compiled, handed_on, joined
from trainledger.ledger.operator_tools import SCALAR, entry, parameter, payloads
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Prim, Tape

LEVELS = ("token", "sequence")
METRICS = ("divergence", "share that is clipped")


class Inputs(NamedTuple):
    """Hidden states and head's weight of the policy, of the reference, and the tokens that were drawn."""

    states: int
    weight: int
    seen: int
    reference: int
    target: int


def _inputs(run: OperatorRun) -> tuple[Tape, Inputs]:
    t = run.tape()
    tokens: Dims = (Axis(Dim.BATCH, run.size("B")), Axis(Dim.SEQUENCE, run.size("T")))
    hidden = Axis(Dim.HIDDEN, run.size("H"))
    table: Dims = (Axis(Dim.VOCAB, run.size("V")), hidden)
    states = entry(t, "policy", (*tokens, hidden), run.element)
    weight = parameter(t, "policy.weight", table, run.element)
    seen = entry(t, "reference", (*tokens, hidden), run.element, False)
    reference = entry(t, "reference.weight", table, run.element, False)
    return t, Inputs(states, weight, seen, reference, entry(t, "loss", tokens, INT64, False))


def _call(run: OperatorRun, t: Tape, ins: Inputs, sequences: int) -> list[int]:
    """What a call is handed besides the policy's states: tokens, mask (fp32), advantages, the reference's states."""
    tokens = sequences * t.dims[ins.target][1].size
    return [
        INT64.bytes_of(tokens),
        FP32.bytes_of(tokens),
        run.element.bytes_of(sequences),
        run.element.bytes_of(tokens * t.dims[ins.seen][-1].size),
    ]


def _written(run: OperatorRun, t: Tape, ins: Inputs, loss: int) -> Written:
    """With the reference's heads of both modules."""
    given = _call(run, t, ins, t.dims[ins.target][0].size)
    given += payloads(t, *[ins.reference] * HARNESSES[run.operator].modules)
    return Written(t, (ins.states,), (ins.weight,), (loss,), tuple(given), products=True)


def whole(run: OperatorRun) -> Written:
    """The baseline: the policy's logits and their log-probabilities, in fp32; then the reference's; the names of both
    last until forward ends."""
    t, ins = _inputs(run)
    own = _picked(t, ins, (ins.states, ins.weight))
    other = _picked(t, ins, (ins.seen, ins.reference))
    out = t.fresh(SCALAR, FP32, True, "policy loss")
    loss = t.run(Prim("policy loss", (own[-1], other[-1]), (out,), (own[-1],), aten.GRAD0, ()))
    t.end([*own, *other])
    return _written(run, t, ins, loss)


def _picked(t: Tape, ins: Inputs, factors: tuple[int, int]) -> list[int]:
    """Logits, log-probabilities, and those of the tokens that were drawn."""
    states, weight = factors
    logits = linear(t, states, (*t.dims[states][:-1], t.dims[weight][0]), weight)
    log = log_softmax(t, aten.to(t, logits, FP32))
    picked = t.fresh(t.dims[ins.target], FP32, t.grad[log], "log-probabilities of the tokens")
    t.run(Prim("gather", (log, ins.target), (picked,), (ins.target,) if t.grad[log] else (), aten.GRAD0, ()))
    return [logits, log, picked]


def chunked(run: OperatorRun) -> Written:
    """Liger's: a compiled function makes loss and gradients of one completion at a time, in forward."""
    t, ins = _inputs(run)
    total = t.fresh(SCALAR, FP32, True, "sum of losses")
    gradient = t.fresh(t.dims[ins.weight], run.element, False, "gradient of the head")
    t.run(Prim("zeros", (), (total, gradient, *(sums := _numbers(t, len(METRICS)))), (), (), ()))
    made = [_completion(t, ins, gradient) for _ in range(t.dims[ins.target][0].size)]
    gradients = ((ins.states, joined(t, ins.states, made)), (ins.weight, gradient))
    return _written(run, t, ins, handed_on(t, total, gradients, names=(*made, *sums)))


def _numbers(t: Tape, count: int) -> list[int]:
    return [t.fresh(SCALAR, FP32, False, "number") for _ in range(count)]


def _completion(t: Tape, ins: Inputs, gradient: int) -> int:
    """The compiled program of one completion: adds to the head's gradient, returns that of its states."""
    length, dtype = t.dims[ins.target][1], t.dtype[ins.weight]
    rows: Dims = (length, t.dims[ins.weight][0])

    made = partial(compiled, t)

    def head(*factors: int) -> tuple[int, ...]:
        logits = made("mm", factors, t.fresh(rows, dtype, False, "logits"))
        numbers = [t.fresh((length,), FP32, False, name) for name in ("largest logit", "sum of exponentials")]
        made("log_softmax", (logits,), *numbers)
        return (logits, *numbers)

    own = head(ins.states, ins.weight)
    counts = _numbers(t, COMPILED_POLICY.counts)
    made("sum", (), *counts)
    other = head(ins.seen, ins.reference)
    scattered = made("scatter", (ins.target,), t.fresh(rows, FP32, False, "gradient of log-probabilities"))
    results = _numbers(t, 1 + len(METRICS))
    made("losses", (*own, *other, *counts, scattered), *results)
    low = made("softmax backward", (*own, scattered), t.alias(own[0]))
    states = (length, t.dims[ins.states][-1])
    result = made("mm", (low, ins.weight), t.fresh(states, dtype, False, "gradient of a completion's states"))
    part = made("mm", (low, ins.states), t.fresh(t.dims[ins.weight], dtype, False, "head's from a completion"))
    t.end([low])
    made("add_", (gradient, part, *results), t.alias(gradient))
    return result


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    (f"fused_linear_grpo_loss_{level}", implementation): writer
    for level in LEVELS
    for implementation, writer in (("torch", whole), ("liger", chunked))
}

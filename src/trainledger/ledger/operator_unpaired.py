"""Heads with a preference loss over single sequences that are labelled good or bad (KTO), in Liger's benchmark: whole,
or by chunks, both beside a reference model's head.

Sources: `COMPILED_UNPAIRED`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import BOOL, FP32, INT64, DType
from trainledger.facts.operator_losses import COMPILED_UNPAIRED
from trainledger.facts.operator_runs import HARNESSES
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.nn import linear
from trainledger.ledger.operator_chunks import compiled, handed_on, joined
from trainledger.ledger.operator_preferences import label_means, pair_loss
from trainledger.ledger.operator_tools import SCALAR, entry, parameter, payloads, several
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Prim, Tape

SUMS = ("loss", "chosen rewards", "rejected rewards", "chosen log-probabilities", "rejected log-probabilities")


class Head(NamedTuple):
    """Hidden states, and a head's weight and bias."""

    states: int
    weight: int
    bias: int | None


class Inputs(NamedTuple):
    """The policy's head, the reference's, and the targets."""

    policy: Head
    reference: Head
    target: int


def _inputs(run: OperatorRun) -> tuple[Tape, Inputs]:
    """Raises ValueError for a release whose code is not the measured one."""
    if not at_least(run.release, COMPILED_UNPAIRED.since):
        raise ValueError(f"kto_loss: known from Liger {COMPILED_UNPAIRED.since} on, not for {run.release}")
    t = run.tape()
    tokens: Dims = (Axis(Dim.BATCH, run.size("B")), Axis(Dim.SEQUENCE, run.size("T")))
    hidden, vocab = Axis(Dim.HIDDEN, run.size("H")), Axis(Dim.VOCAB, run.size("V"))
    biased = bool(run.shape["bias"])

    def head(name: str, trained: bool) -> Head:
        states = entry(t, name, (*tokens, hidden), run.element, False)
        make = parameter if trained else _frozen
        bias = make(t, f"{name}.bias", (vocab,), run.element) if biased else None
        return Head(states, make(t, f"{name}.weight", (vocab, hidden), run.element), bias)

    ins = Inputs(head("policy", True), head("reference", False), entry(t, "loss", tokens, INT64, False))
    return t, ins


def _frozen(t: Tape, name: str, dims: Dims, dtype: DType) -> int:
    return entry(t, name, dims, dtype, False)


def _batch(run: OperatorRun, t: Tape, ins: Inputs, sequences: int) -> list[int]:
    """What is drawn for so many sequences: both heads' states, targets, labels, and the divergence that is given."""
    values = (ins.policy.states, ins.reference.states, ins.target)
    drawn = [t.dtype[value].bytes_of(sequences * elements(t.dims[value][1:])) for value in values]
    return [*drawn, BOOL.bytes_of(sequences), run.element.bytes_of(1)]


def _written(run: OperatorRun, t: Tape, ins: Inputs, loss: int) -> Written:
    """With the reference's heads of both modules, and what the sweep's compiled calls left behind in the process."""
    policy, reference, row = ins.policy, ins.reference, COMPILED_UNPAIRED
    sequences = t.dims[ins.target][0].size
    given = _batch(run, t, ins, sequences) + payloads(t, *reference[1:]) * HARNESSES[run.operator].modules
    # measuring speed, the reference's head had no bias
    given += _batch(run, t, ins, row.speed) + payloads(t, policy.weight, policy.bias, reference.weight)
    first = run.implementation == "liger" and sequences <= row.memory
    if policy.bias is not None and not first:
        given += _batch(run, t, ins, row.memory) + payloads(t, *policy[1:], *policy[1:], *reference[1:])
    trained = tuple(value for value in policy[1:] if value is not None)
    return Written(t, (), trained, (loss,), tuple(given), products=True)


def whole(run: OperatorRun) -> Written:
    """The baseline: all logits, copied apart by their labels; then the reference's, of which log-probabilities stay."""
    t, ins = _inputs(run)
    low = _logits(t, ins.policy)
    wide = aten.to(t, low, FP32)
    means = label_means(t, wide, ins.target)
    apart = t.fresh(t.dims[wide], FP32, False, "logits by their labels")
    t.run(Prim("index", (wide,), (apart,), (), (), ()))
    t.end([low, wide])
    logits = _logits(t, ins.reference)
    expected = label_means(t, logits, ins.target)
    t.end([logits])
    loss = pair_loss(t, means)
    t.end([means, expected, apart])
    return _written(run, t, ins, loss)


def _logits(t: Tape, head: Head) -> int:
    dims: Dims = (*t.dims[head.states][:-1], t.dims[head.weight][0])
    product = linear(t, head.states, dims, head.weight)
    return product if head.bias is None else aten.add(t, product, head.bias)


def chunked(run: OperatorRun) -> Written:
    """Liger's: a compiled function makes loss and gradients of one sequence at a time, in forward."""
    t, ins = _inputs(run)
    trained = [value for value in ins.policy[1:] if value is not None]
    gradients = [t.fresh(t.dims[value], run.element, False, "gradient of the head") for value in trained]
    total = t.fresh(SCALAR, FP32, True, "sum of losses")
    t.run(Prim("zeros", (), (*gradients, total, *_sums(t, len(SUMS) + 1)), (), (), ()))
    sequences = t.dims[ins.target][0].size // COMPILED_UNPAIRED.chunk
    made = [_sequence(t, ins, gradients) for _ in range(sequences)]
    pairs = tuple(zip(trained, gradients, strict=True))
    loss = handed_on(t, total, pairs, beside=(joined(t, ins.policy.states, made),), names=made)
    return _written(run, t, ins, loss)


def _sums(t: Tape, count: int) -> list[int]:
    return [t.fresh(SCALAR, FP32, False, "sum") for _ in range(count)]


def _sequence(t: Tape, ins: Inputs, gradients: list[int]) -> int:
    """The compiled program of one sequence: adds to the head's gradients, returns that of its states."""
    policy, reference, target = ins
    length, dtype = t.dims[target][1], t.dtype[policy.weight]
    rows: Dims = (length, t.dims[policy.weight][0])

    made = partial(compiled, t)

    def head(one: Head) -> tuple[int, ...]:
        logits = made("mm", one[:2], t.fresh(rows, dtype, False, "logits"))
        numbers = [t.fresh((length,), FP32, False, name) for name in ("largest logit", "logarithm of the sum")]
        made("log_softmax", (logits,), *numbers)
        return (logits, *numbers)

    own, other = head(policy), head(reference)
    scattered = made("scatter", (target,), t.fresh(rows, FP32, False, "gradient of log-probabilities"))
    sums = _sums(t, len(SUMS))
    made("losses", (*own, *other, scattered), *sums)
    low = made("softmax backward", (*own, scattered), t.fresh(rows, dtype, False, "gradient of logits"))
    states = (length, t.dims[policy.states][-1])
    result = made("mm", (low, policy.weight), t.fresh(states, dtype, False, "gradient of a sequence's states"))
    parts = [made("mm", (low, policy.states), t.fresh(t.dims[policy.weight], dtype, False, "head's from a sequence"))]
    if policy.bias is not None:
        parts.append(made("sum", (low,), t.fresh(t.dims[policy.bias], dtype, False, "bias's from a sequence")))
    shared = several(
        t, (Axis(Dim.BLOCKS, COMPILED_UNPAIRED.shares),), FP32, "sum of chosen logits", "sum of rejected logits"
    )
    t.run(Prim("sum", own[:1], (t.fresh(SCALAR, dtype, False, "sums of logits"),), (), (), shared))
    for gradient in reversed(gradients):
        made("add_", (gradient, *parts, *sums), t.alias(gradient))
    return result


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("kto_loss", "huggingface"): whole,
    ("kto_loss", "liger"): chunked,
}

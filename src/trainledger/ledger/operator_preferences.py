"""Heads with preference losses over pairs of sequences in published benchmarks: ORPO, CPO, SimPO; whole, or by chunks.

Sources: liger_kernel/chunked_loss/{orpo,cpo,simpo}_loss.py and fused_linear_preference.py, their baselines in
test/utils.py (HFAlignmentLoss), test/chunked_loss/test_{orpo,cpo}_loss.py and benchmark/scripts/benchmark_{orpo,cpo,
simpo}_loss.py, at the commits that added the measurements (02a168d1, 6b2fd02d, 16d06edf, ebd53035).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import BOOL, FP32, INT64
from trainledger.facts.operator_losses import COMPILED_PREFERENCES, LEFT_BEHIND, CompiledPreference
from trainledger.ledger import aten
from trainledger.ledger.cross_entropy import torch_cross_entropy
from trainledger.ledger.losses_pairs import log_softmax
from trainledger.ledger.nn import linear
from trainledger.ledger.operator_chunks import compiled, handed_on, joined
from trainledger.ledger.operator_tools import SCALAR, entry, parameter
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape


class Inputs(NamedTuple):
    """Hidden states of chosen, then of rejected sequences, the head's weight, and the targets."""

    states: int
    weight: int
    target: int


def _inputs(run: OperatorRun) -> tuple[Tape, Inputs]:
    t = run.tape()
    tokens: Dims = (Axis(Dim.BATCH, run.size("B")), Axis(Dim.SEQUENCE, run.size("T")))
    hidden = Axis(Dim.HIDDEN, run.size("H"))
    states = entry(t, "hidden states", (*tokens, hidden), run.element)
    weight = parameter(t, "head.weight", (Axis(Dim.VOCAB, run.size("V")), hidden), run.element)
    return t, Inputs(states, weight, entry(t, "loss", tokens, INT64, False))


def _bytes(t: Tape, dims: Dims, value: int) -> int:
    return t.dtype[value].bytes_of(elements(dims))


def _written(t: Tape, ins: Inputs, loss: int) -> Written:
    """With what the sweep's compiled calls left behind in the process."""
    (_, length, hidden), row = t.dims[ins.states], LEFT_BEHIND
    inputs: Dims = (Axis(Dim.BATCH, row.sequences), length, hidden)
    chunk: Dims = (Axis(Dim.BATCH, row.chunk), length, hidden)
    left = [_bytes(t, t.dims[ins.weight], ins.weight)] * len(("weight", "its gradient"))
    left += [_bytes(t, inputs, ins.states)] * len(("inputs", "their gradient"))
    left += [
        FP32.bytes_of(1),
        _bytes(t, chunk, ins.states),
        *(_bytes(t, one[:-1], ins.target) for one in (inputs, chunk)),
    ]
    given = (_bytes(t, t.dims[ins.target], ins.target), *left)
    return Written(t, (ins.states,), (ins.weight,), (loss,), given, products=True)


def whole(run: OperatorRun) -> Written:
    """The baseline: all logits; cross-entropy of the chosen half, and mean log-probabilities of every sequence."""
    t, ins = _inputs(run)
    logits = linear(t, ins.states, (*t.dims[ins.states][:-1], t.dims[ins.weight][0]), ins.weight)
    wide = aten.to(t, logits, FP32)
    likelihood = _chosen_likelihood(t, wide, ins.target)
    means = label_means(t, wide, ins.target)
    t.end([logits, wide])
    preference = pair_loss(t, means)
    weighted = COMPILED_PREFERENCES[run.operator].weighted
    loss = aten.sub(t, aten.scale(t, likelihood) if weighted else likelihood, preference)
    t.end([likelihood, means, preference])
    return _written(t, ins, loss)


def _chosen_likelihood(t: Tape, logits: int, target: int) -> int:
    """Cross-entropy of the first half of the sequences, a view; backward fills a zero gradient of the whole."""
    pairs, *rest = t.dims[logits]
    half = Axis(Dim.BATCH, pairs.size // LEFT_BEHIND.chunk)
    chosen = aten.part(t, logits, (half, *rest))
    labels = t.outside((half, *t.dims[target][1:]), INT64, False)
    return torch_cross_entropy(t, aten.rows(t, chosen), labels)


def label_means(t: Tape, logits: int, target: int) -> int:
    """Each sequence's mean log-probability of its labels, those that are masked left out."""
    dims, log = t.dims[target], log_softmax(t, logits)
    mask = t.run(Prim("ne", (target,), (t.fresh(dims, BOOL, False, "mask"),), (), (), ()))
    labels = t.run(Prim("where", (target,), (t.fresh(dims, INT64, False, "labels"),), (), (), ()))
    picked = t.fresh(dims, FP32, True, "log-probabilities of labels")
    t.run(Prim("gather", (log, labels), (picked,), (labels,), aten.GRAD0, ()))
    masked = t.fresh(dims, FP32, True, "masked log-probabilities")
    t.run(Prim("mul", (picked, mask), (masked,), (mask,), aten.GRAD0, ()))
    summed = t.fresh(dims[:1], FP32, True, "sums of sequences")
    t.run(Prim("sum", (masked,), (summed,), (), (Step(Code.SEEN, 0),), ()))
    count = t.run(Prim("sum", (mask,), (t.fresh(dims[:1], INT64, False, "counts"),), (), (), ()))
    out = t.fresh(dims[:1], FP32, True, "means")
    t.run(Prim("div", (summed, count), (out,), (count,), aten.GRAD0, ()))
    t.end([mask, labels, picked])
    return out


def pair_loss(t: Tape, means: int) -> int:
    """The preference's own loss: numbers of a pair each."""
    out = t.fresh(SCALAR, t.dtype[means], True, "preference loss")
    return t.run(Prim("preference", (means,), (out,), (means,), aten.GRAD0, ()))


def chunked(run: OperatorRun) -> Written:
    """Liger's: a compiled function makes loss and gradients of one pair at a time, in forward."""
    t, ins = _inputs(run)
    row = COMPILED_PREFERENCES[run.operator]
    _, length, hidden = t.dims[ins.states]
    pair: Dims = (Axis(Dim.BATCH, LEFT_BEHIND.chunk), length)
    gradient = t.fresh(t.dims[ins.weight], run.element, False, "gradient of the head")
    total = t.fresh(SCALAR, FP32, True, "sum of losses")
    t.run(Prim("zeros", (), (gradient, total), (), (), ()))
    made: list[int] = []
    names: tuple[int, ...] = ()
    for _ in range(max(1, t.dims[ins.states][0].size // LEFT_BEHIND.chunk)):
        states = t.fresh((*pair, hidden), run.element, False, "states of a pair")
        target = t.fresh(pair, INT64, False, "targets of a pair")
        for one in (states, target):
            t.run(Prim("cat", (), (one,), (), (), ()))
        t.end(names)
        names = (states, target)
        made.append(_pair(t, row, (states, ins.weight), target))
    gradients = ((ins.states, joined(t, ins.states, made)), (ins.weight, gradient))
    loss = handed_on(t, total, gradients, names=(*made, *names))
    return _written(t, ins, loss)


def _pair(t: Tape, row: CompiledPreference, factors: tuple[int, int], target: int) -> int:
    """The compiled program of a pair: returns the gradient of its states."""
    states, weight = factors
    *pair, hidden = t.dims[states]
    tokens, dtype = Axis(Dim.TOKENS, t.dims[target][0].size * t.dims[target][1].size), t.dtype[states]
    rows: Dims = (tokens, t.dims[weight][0])

    made = partial(compiled, t)
    logits = made("mm", factors, t.fresh(rows, dtype, False, "logits"))
    numbers = [t.fresh((tokens,), FP32, False, name) for name in ("largest logit", "logarithm of the sum")]
    t.run(Prim("log_softmax", (logits,), tuple(numbers), (), (), ()))
    count = [made("count", (target,), t.fresh(SCALAR, INT64, False, "labels that count"))] if row.likelihood else []
    scattered = made("scatter", (target,), t.fresh(rows, FP32, False, "gradient of log-probabilities"))
    low = t.alias(logits) if row.in_place else t.fresh(rows, dtype, False, "gradient of logits")
    made("softmax backward", (logits, scattered, *numbers, *count), low)
    result = made("mm", (low, weight), t.fresh((*pair, hidden), dtype, False, "gradient of a pair's states"))
    made("mm", (low, states), t.fresh(t.dims[weight], dtype, False, "gradient of the head from a pair"))
    return result


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    (operator, implementation): writer
    for operator in COMPILED_PREFERENCES
    for implementation, writer in (("huggingface", whole), ("liger", chunked))
}

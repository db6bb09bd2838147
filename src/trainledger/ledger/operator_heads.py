"""Heads with their losses in published benchmarks: Apple's cut cross-entropy, a compiled head, XTuner's chunks.

Sources: cut_cross_entropy/{cce,cce_lse_forward,cce_backward,indexed_dot,torch_compile}.py and benchmark/memory.py of
ml-cross-entropy (d42911f9b1); xtuner/v1/loss/{chunk_loss,ce_loss}.py and docs/en/pretrain_sft/advanced_tutorial/loss.md
of XTuner, as of September 2025 when its numbers were printed: chunks went through torch.func.grad_and_value.
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32, INT32, INT64, DType
from trainledger.facts.operator_kernels import CUT_CROSS_ENTROPY
from trainledger.facts.operator_runs import HARNESSES
from trainledger.ledger import aten
from trainledger.ledger.operator_tools import SCALAR, entry, parameter, several, workspace
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead


def _inputs(t: Tape, run: OperatorRun) -> tuple[int, int, int]:
    """Hidden states, the head's weight, and targets."""
    tokens, hidden = Axis(Dim.TOKENS, run.size("tokens")), Axis(Dim.HIDDEN, run.size("hidden"))
    x = entry(t, "hidden states", (tokens, hidden), run.element)
    weight = parameter(t, "head.weight", (Axis(Dim.VOCAB, run.size("vocab")), hidden), run.element)
    return x, weight, entry(t, "loss", (tokens,), INT64, False)


def _written(t: Tape, ins: tuple[int, int, int], loss: int) -> Written:
    return Written(t, ins[:1], ins[1:-1], (loss,), (INT64.bytes_of(elements(t.dims[ins[-1]])),), products=True)


def cut_cross_entropy(run: OperatorRun) -> Written:
    """Apple's: fp32 numbers of each token and mean logits of the vocabulary's entries, which order it in backward."""
    t = run.tape()
    ins = _inputs(t, run)
    (tokens, hidden), (vocab, _) = t.dims[ins[0]], t.dims[ins[1]]
    lse = t.fresh((tokens,), FP32, False, "logsumexp")
    average = t.fresh((vocab,), FP32, False, "mean logits")
    locks = several(t, (Axis(Dim.ROWS, _parts(tokens, CUT_CROSS_ENTROPY.rows)),), INT32, "locks")
    t.run(Prim("logsumexp", ins[:-1], (lse, average), (), (), locks))
    dot = t.run(Prim("dot", ins, (t.fresh((tokens,), FP32, False, "logit of the target"),), (), (), ()))
    capped = t.run(Prim("softcap", (dot,), (t.fresh((tokens,), FP32, False, "capped logit"),), (), (), ()))
    loss = t.fresh(SCALAR, FP32, True, "loss")
    steps = _cut_steps(t, (tokens, hidden, vocab))
    t.run(Prim("cut cross-entropy", (*ins[:-1], capped, lse), (loss,), (lse, average), steps, ()))
    t.end([lse, average])
    return _written(t, ins, loss)


def _parts(axis: Axis, size: int) -> int:
    return -(-axis.size // size)


def _cut_steps(t: Tape, axes: tuple[Axis, Axis, Axis]) -> tuple[Step, ...]:
    """The vocabulary in order of its mean logits, then both gradients, which blocks add to under locks."""
    tokens, hidden, vocab = axes
    k = CUT_CROSS_ENTROPY
    columns = Axis(Dim.COLUMNS, _parts(hidden, k.columns))
    values = several(t, (vocab,), FP32, "sorted mean logits")
    places = several(t, (vocab,), INT64, "their places")
    order = several(t, (vocab,), INT32, "order of the vocabulary")
    locks = [several(t, (Axis(Dim.ROWS, _parts(one, k.rows)), columns), INT32, "locks")[0] for one in (tokens, vocab)]
    sort = (*born(*values, *places, *order), *dead(*values, *places))
    return (*sort, Step(Code.GRAD, 0), Step(Code.GRAD, 1), *born(*locks), *dead(*locks, *order))


def compiled(run: OperatorRun) -> Written:
    """Compiled by Inductor: logits in the inputs' dtype are kept, all else of the forward is fused; backward scatters
    the loss's gradient into fp32 zeros and reads them for that of the logits."""
    t = run.tape()
    ins = _inputs(t, run)
    tokens, vocab = t.dims[ins[0]][0], t.dims[ins[1]][0]
    logits = t.fresh((tokens, vocab), run.element, False, "logits")
    t.run(Prim("mm", ins[:-1], (logits,), (), (), ()))
    numbers = [t.fresh((tokens,), FP32, False, name) for name in ("largest logit", "logarithm of the sum")]
    total = t.fresh(SCALAR, FP32, False, "total weight")
    loss = t.fresh(SCALAR, FP32, True, "loss")
    scattered = several(t, (tokens, vocab), FP32, "scattered gradient")
    sums = several(t, (tokens,), FP32, "sum of each token's gradient")
    spread = several(t, (tokens, vocab), run.element, "gradient of the logits")
    fused = (*born(*scattered, *sums, *spread), *dead(*scattered, *sums))
    steps = (*fused, Step(Code.GRAD, 1), Step(Code.GRAD, 0), *dead(*spread))
    outs, saves = (loss, total, *numbers), (logits, total, *numbers)
    t.run(Prim("fused loss", (*ins, logits), outs, saves, steps, ()))
    t.end([logits, total, *numbers])
    return _written(t, ins, loss)


def chunked(run: OperatorRun) -> Written:
    """XTuner's: gradients of hidden states and weight are made in forward, chunk of tokens by chunk of tokens.

    Its script ran the eager loss before, whose graph still holds the first hidden states, their gradient, and made the
    backward thread's workspace.
    """
    t = run.tape()
    ins = _inputs(t, run)
    x, weight, _ = ins
    kept = (
        t.fresh(t.dims[x], t.dtype[x], False, "gradient of the hidden states"),
        t.fresh(t.dims[weight], t.dtype[weight], False, "gradient of the head"),
    )
    loss = t.fresh(SCALAR, FP32, True, "loss")
    t.run(Prim("zeros", (), (loss, *kept), (), (), ()))
    summed = t.alias(loss)
    size = int(run.implementation.rpartition("-")[-1])
    work = _chunk(t, ins, min(size, t.dims[x][0].size))
    # the gradients are handed on by copies, since the function still names them
    steps = (Step(Code.GRAD, 0), Step(Code.GRAD, 1))
    t.run(Prim("chunks", (x, weight, loss), (summed,), kept, steps, work))
    t.end(kept)
    hidden = t.dtype[x].bytes_of(elements(t.dims[x]))
    numbers = (INT64.bytes_of(t.dims[x][0].size), FP32.bytes_of(t.dims[x][0].size))
    given = (hidden, hidden, *numbers, workspace(run.device, HARNESSES[run.operator].architecture))
    return Written(t, (x,), (weight,), (summed,), given, products=True, first=True)


def _chunk(t: Tape, ins: tuple[int, int, int], size: int) -> tuple[int, ...]:
    """What lives at once at most in a chunk after the first: grad_and_value keeps the graph of its backward, and the
    names of the chunk before still hold its weight gradient and its logits."""
    x, weight, _ = ins
    several_chunks, dtype, head = size < t.dims[x][0].size, t.dtype[x], t.dims[weight]
    logits: Dims = (Axis(Dim.TOKENS, size), head[0])
    states: Dims = (logits[0], head[1])
    before = [
        (logits, FP32, "logits before"),
        (states, dtype, "states' gradient before"),
        (head, dtype, "head's before"),
    ]
    names = ("logits", "log-probabilities", "gradient of the log-probabilities")
    parts = [*(before if several_chunks else []), *((logits, FP32, name) for name in names)]
    low = (logits, dtype, "gradient of the logits in the low dtype")
    # either the cast of the logits' gradient, or then both products
    cast = [(logits, FP32, "gradient of the logits"), low]
    made = [low, (states, dtype, "gradient of the states"), (head, dtype, "gradient of the head")]
    largest = max(cast, made, key=_bytes)
    return tuple(aten.temporary(t, *part) for part in (*parts, *largest))


def _bytes(parts: list[tuple[Dims, DType, str]]) -> int:
    return sum(dtype.bytes_of(elements(dims)) for dims, dtype, _ in parts)


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("linear_cross_entropy", "cut-cross-entropy"): cut_cross_entropy,
    ("linear_cross_entropy", "torch-compile"): compiled,
    ("linear_cross_entropy", "chunked-1024"): chunked,
}

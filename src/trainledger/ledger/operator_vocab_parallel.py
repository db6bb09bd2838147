"""Cross-entropy over a rank's part of the vocabulary in Liger's benchmark against Megatron.

Each repetition begins without a gradient; the sum of the tokens' losses is what backward starts from. Sources:
liger_kernel/ops/vocab_parallel_cross_entropy.py and benchmark/scripts/benchmark_megatron_cross_entropy.py (80f19ad7);
megatron/core/tensor_parallel/cross_entropy.py, fusions/fused_cross_entropy.py (0.16) and the buffers of the programs
that PyTorch Inductor makes of its functions (2.7.1 and 2.14 alike).
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import BF16, BOOL, FP32, INT64
from trainledger.ledger.operator_losses import total
from trainledger.ledger.operator_tools import entry, several
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead


def _inputs(run: OperatorRun) -> tuple[Tape, int]:
    """The rank's logits, bf16."""
    t = run.tape()
    vocab = run.size("V") // run.size("TP")
    return t, entry(t, "logits", (Axis(Dim.TOKENS, run.size("S", "B")), Axis(Dim.VOCAB, vocab)), BF16)


def _made(t: Tape, kind: str, dims: Dims, ins: tuple[int, ...] = ()) -> int:
    return t.run(Prim(kind, ins, (t.fresh(dims, FP32, False, kind),), (), (), ()))


def _written(t: Tape, x: int, losses: int) -> Written:
    result, target = total(t, losses), INT64.bytes_of(elements(t.dims[losses]))
    return Written(t, (x,), (), (result,), (target,), kept=(losses,), first=True)


def liger(run: OperatorRun) -> Written:
    """Keeps exponentials in fp32; backward writes the gradient over them and casts it into a new tensor."""
    t, x = _inputs(run)
    rows = t.dims[x][:1]
    largest = _made(t, "largest logits", rows, (x,))
    kept = tuple(t.fresh(dims, FP32, False, name) for dims, name in ((t.dims[x], "exponentials"), (rows, "their sums")))
    predicted = t.fresh(rows, FP32, False, "logits of targets")
    t.run(Prim("exponentials", (x, largest), (*kept, predicted), (), (), ()))
    plain = _made(t, "losses", rows, (kept[-1], predicted))
    losses = t.fresh(rows, FP32, True, "losses of tokens that count")
    incoming = several(t, rows, FP32, "gradient of the losses, written out")
    steps = (*born(*incoming), Step(Code.GRAD, 0), *dead(*incoming))
    t.run(Prim("vocab-parallel cross-entropy", (x, plain), (losses,), kept, steps, ()))
    t.end([*kept, largest, predicted])
    return _written(t, x, losses)


def megatron(run: OperatorRun) -> Written:
    """Megatron's unfused one: a copy in fp32 becomes the softmax, then its own gradient, which the engine casts."""
    t, x = _inputs(run)
    return _by_softmax(t, x, (), (Step(Code.GRAD, 0),))


def fused(run: OperatorRun) -> Written:
    """Megatron's fused one: its compiled functions write exponentials twice, and backward writes the gradient into a
    copy of the softmax, then casts it itself."""
    t, x = _inputs(run)
    twice, copied = several(t, t.dims[x], FP32, "exponentials once more", "softmax that becomes the gradient")
    return _by_softmax(t, x, (twice,), (*born(copied), Step(Code.GRAD, 0), *dead(copied)))


def _by_softmax(t: Tape, x: int, work: tuple[int, ...], steps: tuple[Step, ...]) -> Written:
    """The softmax in fp32 is kept, and which targets are this rank's; `work` lives while the exponentials are made."""
    rows = t.dims[x][:1]
    softmax = _made(t, "softmax in fp32", t.dims[x], (x,))
    mask, places = (t.fresh(rows, dtype, False, "targets of other ranks") for dtype in (BOOL, INT64))
    t.run(Prim("targets", (), (mask, places), (), (), work))
    losses = t.fresh(rows, FP32, True, "losses")
    kept = (softmax, mask, places)
    t.run(Prim("vocab-parallel cross-entropy", (x,), (losses,), kept, steps, ()))
    t.end(kept)
    return _written(t, x, losses)


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("megatron_cross_entropy", "liger"): liger,
    ("megatron_cross_entropy", "megatron-unfused"): megatron,
    ("megatron_cross_entropy", "megatron-fused"): fused,
}

"""A student's head learning from a teacher's by cross-entropy and the angle between both logits, in Liger's benchmark:
whole, or by chunks.

Sources: `COMPILED_COSINE`; torch/nn/functional.py, normalize; ATen, cosine_similarity; FunctionsManual.cpp,
div_tensor_other_grad, norm_backward.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.facts.operator_losses import COMPILED_COSINE
from trainledger.facts.operator_runs import HARNESSES
from trainledger.ledger import aten
from trainledger.ledger.cross_entropy import torch_cross_entropy
from trainledger.ledger.nn import flat_linear
from trainledger.ledger.operator_chunks import compiled, handed_on, joined, sizes
from trainledger.ledger.operator_distillation import COPIES, HEADS, Inputs, inputs_of
from trainledger.ledger.operator_tools import ONE, SCALAR, parameter, payloads, several
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead


def _inputs(run: OperatorRun) -> tuple[Tape, Inputs]:
    return inputs_of(run, COMPILED_COSINE.teacher, False)


def _written(run: OperatorRun, t: Tape, ins: Inputs, loss: int, biases: tuple[int, ...] = ()) -> Written:
    """With the other hidden states and the targets, both modules' teachers, and biases that no gradient reaches."""
    modules = HARNESSES[run.operator].modules
    given = payloads(t, ins.seen, ins.target, *(ins.states for _ in COPIES), *[ins.teacher] * modules)
    if run.shape["bias"]:
        given += [run.element.bytes_of(run.size("V"))] * (len(HEADS) * modules - len(biases) * modules)
    return Written(t, (ins.states,), (ins.weight, *biases), (loss,), tuple(given), products=True)


def whole(run: OperatorRun) -> Written:
    """The baseline, which reads no bias: all logits in fp32, their lengths, and the product of both, made equally long
    twice over."""
    t, ins = _inputs(run)
    dims: Dims = (t.dims[ins.states][0], t.dims[ins.weight][0])
    low = [flat_linear(t, x, dims, weight) for x, weight in ((ins.states, ins.weight), (ins.seen, ins.teacher))]
    logits = [aten.to(t, one, FP32) for one in low]
    hard = torch_cross_entropy(t, logits[0], ins.target)
    t.end(low)
    tempered = [_divided_into(t, one) for one in logits]
    units = [_over_length(t, one, _length(t, one, "clamp_min")) for one in tempered]
    lengths = [_length(t, one, "clone") for one in units]
    ratios = [_over_length(t, one, length) for one, length in zip(units, lengths, strict=True)]
    product = aten.mul(t, ratios[0], ratios[-1])
    sums = t.fresh(t.dims[product][:1], FP32, True, "cosines")
    t.run(Prim("sum", (product,), (sums,), (), (Step(Code.SEEN, 0),), ()))
    t.end([*lengths, *ratios, product])
    soft = _mean(t, aten.scale(t, aten.scale(t, sums)))
    t.end([*units, sums])
    loss = aten.add(t, aten.scale(t, hard), aten.scale(t, soft))
    t.end([*logits, *tempered, hard, soft])
    return _written(run, t, ins, loss)


def _divided_into(t: Tape, x: int) -> int:
    """x /= a number: the quotient lies where x lay."""
    return t.run(Prim("div_", (x,), (t.alias(x),), (), aten.GRAD0, ()))


def _mean(t: Tape, x: int) -> int:
    return t.run(Prim("mean", (x,), (t.fresh(SCALAR, FP32, t.grad[x], "mean"),), (), aten.GRAD0, ()))


def _length(t: Tape, x: int, kind: str) -> int:
    """The length of rows, kept from zero: by `clamp_min`, which saves what it read, or in place in a `clone`."""
    rows: Dims = (*t.dims[x][:-1], ONE)
    grad = t.grad[x]
    length = t.fresh(rows, t.dtype[x], grad, "lengths")
    t.run(Prim("norm", (x,), (length,), (x, length) if grad else (), aten.GRAD0, ()))
    safe = t.fresh(rows, t.dtype[x], grad, "lengths from zero")
    saves = (length,) if grad and kind == "clamp_min" else ()
    t.run(Prim(kind, (length,), (safe,), saves, aten.GRAD0, ()))
    t.end([length])
    return safe


def _over_length(t: Tape, x: int, length: int) -> int:
    """x / its rows' lengths. Backward makes the lengths' gradient first, at full size."""
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "of one length")
    full, *parts = several(t, t.dims[x], t.dtype[x], "full", "over the length", "over its square", "negative gradient")
    steps = (*born(*parts, full), *dead(*parts), Step(Code.GRAD, 0), Step(Code.LEFT), Step(Code.GRAD, 1), *dead(full))
    return t.run(Prim("div", (x, length), (out,), (x, length) if t.grad[x] else (), steps, ()))


def chunked(run: OperatorRun) -> Written:
    """Liger's: a compiled function makes loss and gradients of some tokens at a time, in forward."""
    t, ins = _inputs(run)
    bias = parameter(t, "student.bias", t.dims[ins.weight][:1], run.element) if run.shape["bias"] else None
    trained = [ins.weight] if bias is None else [ins.weight, bias]
    gradients = [t.fresh(t.dims[value], run.element, False, "gradient of the head") for value in trained]
    loss = t.fresh(SCALAR, FP32, True, "sum of losses")
    t.run(Prim("zeros", (), (*gradients, loss), (), (), ()))
    made = [_chunk(t, ins, size, gradients) for size in sizes(t.dims[ins.states][0].size, COMPILED_COSINE.chunk)]
    pairs = ((ins.states, joined(t, ins.states, made)), *zip(trained, gradients, strict=True))
    result = handed_on(t, loss, pairs, names=made)
    return _written(run, t, ins, result, tuple(trained[1:]))


def _chunk(t: Tape, ins: Inputs, size: int, gradients: list[int]) -> int:
    """The compiled program of some tokens: adds to the head's gradients, returns that of their states."""
    tokens, dtype = Axis(Dim.TOKENS, size), t.dtype[ins.weight]
    rows: Dims = (tokens, t.dims[ins.weight][0])

    made = partial(compiled, t)
    seen = made("mm", (ins.seen, ins.teacher), t.fresh(rows, dtype, False, "teacher's logits"))
    logits = made("mm", (ins.states, ins.weight), t.fresh(rows, dtype, False, "student's logits"))
    numbers = [t.fresh((tokens,), one, False, "of each token") for one in (dtype, FP32, FP32)]
    low = t.fresh(rows, dtype, False, "gradient of logits")
    made("losses and gradients", (logits, seen), *numbers, low)
    result = made("mm", (low, ins.weight), t.fresh((tokens, t.dims[ins.weight][1]), dtype, False, "states' gradient"))
    parts = [
        made("mm", (low, ins.states), t.fresh(t.dims[ins.weight], dtype, False, "gradient of the head from a chunk"))
    ]
    if len(gradients) > 1:
        parts.append(made("sum", (low,), t.fresh(rows[1:], dtype, False, "bias's from a chunk")))
    t.end([low])
    made("loss", (logits, *numbers), t.fresh(SCALAR, FP32, False, "loss"))
    for gradient in gradients:
        made("add_", (gradient, *parts), t.alias(gradient))
    return result


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("distill_cosine_loss", "torch"): whole,
    ("distill_cosine_loss", "liger"): chunked,
}

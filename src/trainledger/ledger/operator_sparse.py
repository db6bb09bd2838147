"""Sparsemax and sparse multi-token attention of published benchmarks.

Sources: liger_kernel/ops/{sparsemax,multi_token_attention}.py (0.5.9 to 0.8.2), their benchmarks' baselines, and
torch's sort, gather, cumsum and clamp (derivatives.yaml, FunctionsManual.cpp, v2.4 to v2.13).
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import BOOL, FP32, INT64, UINT8
from trainledger.facts.operator_kernels import EAGER_SPARSEMAX, SORT
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.operator_tools import ONE, SCALAR, entry, parameter
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead


def _rows(t: Tape, x: int) -> Dims:
    return (*t.dims[x][:-1], ONE)


def _sorted(t: Tape, x: int) -> tuple[int, int]:
    """Values and places of sorted rows; backward scatters into zeros. The kernel's own work is for long rows."""
    dims, width = t.dims[x], t.dims[x][-1].size
    work: tuple[int, ...] = ()
    if width > SORT.small:
        if elements(dims) // width < SORT.segments:
            raise ValueError("few long rows are sorted by another kernel")
        places = aten.temporary(t, dims, INT64, "sort: places")
        halves = t.dtype[x].bytes_of(elements(dims)) + INT64.bytes_of(elements(dims)) + SORT.header
        work = (places, aten.temporary(t, (Axis(Dim.ELEMENTS, halves),), UINT8, "sort: other halves"))
    values, places = t.fresh(dims, t.dtype[x], t.grad[x], "sorted"), t.fresh(dims, INT64, False, "places")
    saves = (places,) if t.grad[x] else ()
    t.run(Prim("sort", (x,), (values, places), saves, (Step(Code.GRAD, 0),), work))
    return values, places


def _cumsum(t: Tape, x: int) -> int:
    """Sums along a row; backward turns the gradient round, sums it up, and turns it round again, in one expression."""
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "cumulative sum")
    turned, summed = (aten.temporary(t, t.dims[x], t.dtype[x], name) for name in ("turned round", "summed up"))
    steps = (*born(turned, summed), Step(Code.GRAD, 0), *dead(turned, summed))
    return t.run(Prim("cumsum", (x,), (out,), (), steps, ()))


def _count(t: Tape, x: int) -> int:
    """The sum of a row of truth values, which are cast to int64 before."""
    cast = aten.temporary(t, t.dims[x], INT64, "truth values as numbers")
    return t.run(Prim("sum", (x,), (t.fresh(_rows(t, x), INT64, False, "count"),), (), (), (cast,)))


def _at_least_zero(t: Tape, x: int) -> int:
    """clamp(min=0): saves its input; backward makes a truth value of each element and a zero."""
    grad = t.grad[x]
    out = t.fresh(t.dims[x], t.dtype[x], grad, "clamped")
    inside = (aten.temporary(t, t.dims[x], BOOL, "where it passes"), aten.temporary(t, SCALAR, t.dtype[x], "zero"))
    steps = (*born(*inside), Step(Code.GRAD, 0), *dead(*inside))
    return t.run(Prim("clamp", (x,), (out,), (x,) if grad else (), steps, ()))


def _threshold(t: Tape, values: int, cumulated: int, shifted: bool) -> list[int]:
    """Where 1 + k z > the cumulative sum: the names that live on are k, (where asked) the left side, and the result."""
    dims = t.dims[values]
    places = aten.plain(t, "places from one", (dims[-1],), t.dtype[values])
    product = aten.plain(t, "product", dims, t.dtype[values], (places, values))
    left = aten.plain(t, "one more", dims, t.dtype[values], (product,))
    support = aten.plain(t, "support", dims, BOOL, (left, cumulated))
    return [places, left, support] if shifted else [places, support]


def sparsemax_by_hand(t: Tape, x: int) -> int:
    """The baseline of the sparsemax benchmark."""
    values, order = _sorted(t, x)
    cumulated = _cumsum(t, values)
    names = _threshold(t, values, cumulated, True)
    support = names[-1]
    count = _count(t, support)
    k = aten.plain(t, "at least one", t.dims[count], INT64, (count,))
    product = aten.mul(t, values, support)
    total = t.fresh(_rows(t, x), t.dtype[x], t.grad[x], "sum of the support")
    t.run(Prim("sum", (product,), (total,), (), (Step(Code.SEEN, 0),), ()))
    tau = _quotient(t, aten.shift(t, total), k)
    rest = aten.sub(t, x, tau)
    out = _at_least_zero(t, rest)
    t.end([values, order, cumulated, *names, k, total, tau])
    return out


def _quotient(t: Tape, x: int, y: int) -> int:
    """x / y where y needs no gradient: saves y."""
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "threshold")
    return t.run(Prim("div", (x, y), (out,), (y,) if t.grad[x] else (), (Step(Code.GRAD, 0),), ()))


def _in_function(t: Tape, x: int, forward: Callable[[Tape, int], int]) -> int:
    """An autograd function that runs `forward` without a graph, and saves its result for one kernel in backward."""
    inside = t.alias(x)
    t.grad[inside] = False
    raw = forward(t, inside)
    out = t.alias(raw)
    t.grad[out] = True
    return t.run(Prim("sparsemax", (x, raw), (out,), (out,), (Step(Code.GRAD, 0),), ()))


def _by_kernel(t: Tape, x: int) -> int:
    """Liger's kernel reads the rows and their sorted values; of the sort's results only the values stay."""
    values, _ = _sorted(t, x)
    out = aten.plain(t, "sparsemax", t.dims[x], t.dtype[x], (x, values))
    t.end([values])
    return out


def _liger_sparsemax(run: OperatorRun) -> Callable[[Tape, int], int]:
    newer = not run.release or at_least(run.release, EAGER_SPARSEMAX.until)
    return _by_kernel if newer else sparsemax_by_hand


def sparsemax(run: OperatorRun) -> Written:
    """Sparsemax of `B` x `T` rows of `V` elements."""
    t = run.tape()
    x = entry(t, "x", (Axis(Dim.TOKENS, run.size("B", "T")), Axis(Dim.COLUMNS, run.size("V"))), run.element)
    liger = run.implementation == "liger"
    out = _in_function(t, x, _liger_sparsemax(run)) if liger else sparsemax_by_hand(t, x)
    return Written(t, (x,), (), (out,))


def _filled(t: Tape, x: int, mask: int) -> int:
    """masked_fill with the opposite of a mask, which it saves; backward fills the gradient likewise."""
    opposite = aten.plain(t, "not the mask", t.dims[mask], BOOL, (mask,))
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "masked")
    return t.run(Prim("masked_fill", (x, opposite), (out,), (opposite,), (Step(Code.GRAD, 0),), ()))


def _convolved(t: Tape, x: int, weights: tuple[int, ...], channels: int) -> int:
    """A convolution that keeps the width: saves its input and its weight."""
    out = t.fresh((t.dims[x][0], Axis(Dim.HEADS, channels), *t.dims[x][2:]), t.dtype[x], True, "convolved")
    steps = tuple(Step(Code.GRAD, at) for at in range(1 + len(weights)))
    return t.run(Prim("convolution", (x, *weights), (out,), (x, weights[0]), steps, ()))


def _sparse_rows(t: Tape, z: int) -> tuple[int, ...]:
    """The baseline of the attention's benchmark, up to the probabilities; the names of its forward, they last."""
    values, order = _sorted(t, z)
    cumulated = _cumsum(t, values)
    rows = _rows(t, z)
    places = aten.plain(t, "places from one", (t.dims[z][-1],), t.dtype[z])
    positive = aten.plain(t, "not masked", t.dims[z], BOOL, (values,))
    product = aten.plain(t, "product", t.dims[z], t.dtype[z], (places, values))
    left = aten.plain(t, "one more", t.dims[z], t.dtype[z], (product,))
    above = aten.plain(t, "above", t.dims[z], BOOL, (left, cumulated))
    condition = aten.plain(t, "support", t.dims[z], BOOL, (above, positive))
    count = _count(t, condition)
    ones = aten.plain(t, "ones", rows, INT64)
    safe = aten.plain(t, "at least one", rows, INT64, (count, ones))
    index = aten.plain(t, "index", rows, INT64, (safe,))
    picked = t.fresh(rows, t.dtype[z], True, "picked")
    t.run(Prim("gather", (cumulated, index), (picked,), (cumulated, index), (Step(Code.GRAD, 0),), ()))
    tau = _quotient(t, aten.shift(t, picked), aten.plain(t, "count", rows, t.dtype[z], (safe,)))
    none = aten.plain(t, "no support", rows, BOOL, (count,))
    far = aten.plain(t, "infinity", rows, t.dtype[z], (tau,))
    chosen = t.fresh(rows, t.dtype[z], True, "threshold or infinity")
    t.run(Prim("where", (none, far, tau), (chosen,), (none,), (Step(Code.GRAD, 2),), ()))
    out = _at_least_zero(t, aten.sub(t, z, chosen))
    return (values, order, cumulated, places, positive, condition, count, safe, picked, chosen, out)


def sparse_multi_token_attention(run: OperatorRun) -> Written:
    """Scores of `B` x `C_in` heads over `L` x `L`, masked, made sparse, and convolved over both lengths."""
    t = run.tape()
    length = run.size("L")
    square = (Axis(Dim.SEQUENCE, length), Axis(Dim.KEY_SEQUENCE, length))
    x = entry(t, "x", (Axis(Dim.BATCH, run.size("B")), Axis(Dim.HEADS, run.size("C_in")), *square), run.element)
    out_channels, kernel = Axis(Dim.HEADS, run.size("C_out")), Axis(Dim.ROWS, run.size("K"))
    dims = (out_channels, Axis(Dim.COLUMNS, run.size("C_in") // run.size("groups")), kernel, kernel)
    weights = [parameter(t, "weight", dims, run.element)]
    if run.shape["bias"]:
        weights.append(parameter(t, "bias", (out_channels,), run.element))
    write = _attention_by_kernels if run.implementation == "liger" else _attention_by_hand
    out = write(t, run, x, tuple(weights))
    return Written(t, (x,), tuple(weights), (out,))


def _attention_by_hand(t: Tape, run: OperatorRun, x: int, weights: tuple[int, ...]) -> int:
    ones = aten.plain(t, "ones", t.dims[x][2:], BOOL)
    mask = aten.plain(t, "mask", t.dims[x][2:], BOOL, (ones,))
    ends = [aten.plain(t, name, SCALAR, FP32) for name in ("infinity", "zero")]
    masked = _filled(t, aten.to(t, x, FP32), mask)
    names = _sparse_rows(t, masked)
    convolved = _convolved(t, names[-1], weights, run.size("C_out"))
    out = aten.to(t, _filled(t, convolved, mask), t.dtype[x])
    t.end([mask, *ends, masked, *names, convolved])
    return out


def _attention_by_kernels(t: Tape, run: OperatorRun, x: int, weights: tuple[int, ...]) -> int:
    """Liger's function: masks by kernels of their own, the convolution by torch; backward's names live to its end."""
    inside = t.alias(x)
    t.grad[inside] = False
    masked = aten.plain(t, "masked", t.dims[x], t.dtype[x], (inside,))
    probabilities = _liger_sparsemax(run)(t, masked)
    dims = (t.dims[x][0], Axis(Dim.HEADS, run.size("C_out")), *t.dims[x][2:])
    convolved = aten.plain(t, "convolved", dims, t.dtype[x], (probabilities,))
    out = t.fresh(dims, t.dtype[x], True, "output")
    below, wide = (aten.temporary(t, dims, t.dtype[x], f"gradient of the {name}") for name in ("scores", "rows"))
    spread = aten.temporary(t, t.dims[x], t.dtype[x], "gradient of the probabilities")
    last = (Step(Code.GRAD, at) for at in range(1, 1 + len(weights)))
    steps = (*born(below, spread), *last, *born(wide), Step(Code.GRAD, 0), *dead(below, spread, wide))
    ins = (x, *weights, masked, probabilities, convolved)
    t.run(Prim("multi-token attention", ins, (out,), (masked, probabilities, weights[0]), steps, ()))
    t.end([masked, probabilities, convolved])
    return out


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("sparsemax", "liger"): sparsemax,
    ("sparsemax", "torch"): sparsemax,
    ("sparse_multi_token_attention", "liger"): sparse_multi_token_attention,
    ("sparse_multi_token_attention", "torch"): sparse_multi_token_attention,
}

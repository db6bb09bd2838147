"""PyTorch's eager primitives on a tape: what each returns, saves, and does backward.

Source of every rule: tools/autograd/derivatives.yaml and torch/csrc/autograd/FunctionsManual.cpp (v2.4 to v2.13);
reductions and casts of gradients to their input's shape and dtype: torch/csrc/autograd/engine.cpp, validate_outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.base.sources import Basis
from trainledger.facts.dtypes import BOOL, FP16, FP32, INT64, DType
from trainledger.ledger.reduction import column_sum_work
from trainledger.ledger.tape import Code, Prim, Step, Storage, Tape

GRAD0 = (Step(Code.GRAD, 0),)
PASS0 = (Step(Code.PASS, 0),)


def promote(a: DType, b: DType) -> DType:
    """The dtype of an elementwise result of two floating tensors (PyTorch's type promotion)."""
    if a == b:
        return a
    return FP32 if a.bits == b.bits else (a if a.bits > b.bits else b)


def broadcast(a: Dims, b: Dims) -> Dims:
    """The dims of an elementwise result: aligned from the right, ones stretched."""
    pairs = zip_longest(reversed(a), reversed(b))
    wide = [y if x is None else x if y is None or x.size >= y.size else y for x, y in pairs]
    return tuple(reversed([axis for axis in wide if axis is not None]))


def unary(t: Tape, kind: str, x: int, saves_in: bool = False, saves_out: bool = False) -> int:
    """An elementwise function of one tensor whose backward makes one gradient."""
    grad = t.grad[x]
    out = t.fresh(t.dims[x], t.dtype[x], grad, kind)
    saves = ((x,) if saves_in else ()) + ((out,) if saves_out else ())
    return t.run(Prim(kind, (x,), (out,), saves if grad else (), GRAD0, ()))


def view(t: Tape, x: int, dims: Dims | None = None) -> int:
    """Another shape of the same storage; the gradient passes through."""
    out = t.alias(x, dims)
    return t.run(Prim("view", (x,), (out,), (), PASS0, ()))


def rows(t: Tape, x: int) -> int:
    """A view with batch and sequence as one dim, or apart again; the gradient passes through as a view."""
    out = t.alias(x)
    return t.run(Prim("view", (x,), (out,), (), (Step(Code.SEEN, 0),), ()))


def heads_first(t: Tape, x: int, dims: Dims) -> int:
    """A view by heads whose gradient arrives head by head in memory: backward copies it back to token order."""
    out = t.alias(x, dims)
    return t.run(Prim("view", (x,), (out,), (), GRAD0, ()))


def to(t: Tape, x: int, dtype: DType) -> int:
    """A cast; none when the dtype is the same already. The gradient is cast back."""
    if t.dtype[x] == dtype:
        return x
    out = t.fresh(t.dims[x], dtype, t.grad[x], f"cast to {dtype.name}")
    return t.run(Prim("to", (x,), (out,), (), GRAD0, ()))


def copy(t: Tape, x: int, dims: Dims | None = None) -> int:
    """A contiguous copy (clone); the gradient passes through."""
    out = t.fresh(t.dims[x] if dims is None else dims, t.dtype[x], t.grad[x], "copy")
    return t.run(Prim("clone", (x,), (out,), (), PASS0, ()))


def plain(t: Tape, kind: str, dims: Dims, dtype: DType, ins: tuple[int, ...] = ()) -> int:
    """A result that no gradient passes, computed from others."""
    return t.run(Prim(kind, ins, (t.fresh(dims, dtype, False, kind),), (), (), ()))


def temporary(t: Tape, dims: Dims, dtype: DType, name: str, basis: Basis = Basis.COUNTED) -> int:
    """A storage that lives only inside a primitive; returns its number."""
    t.storages.append(Storage.of(dims, dtype, f"{t.scope}: {name}")._replace(basis=basis))
    return len(t.storages) - 1


def column_scratch(t: Tape, dims: Dims, kept: Dims) -> tuple[Step, ...]:
    """Scratch memory of a sum over all rows that leaves one value a column; none for other sums."""
    columns = elements(kept)
    # as many rows as columns are told apart by the last dim, which a sum over each row leaves with one entry
    if columns == 1 or columns != dims[-1].size or kept[-1].size == 1:
        return ()
    made = column_sum_work(t, elements(dims) // columns, columns, t.device)
    return tuple(Step(code, 0, one) for code in (Code.BORN, Code.DEAD) for one in made)


def gradients(t: Tape, ins: Sequence[int], dims: Dims, dtype: DType, passed: bool = False) -> tuple[Step, ...]:
    """Backward of an elementwise function: full-size gradients first, the last input's before the first's, as generated
    functions compute them (`other` before `self`); then reduced and cast to their inputs, the first input's first."""
    first: list[Step] = []
    then: list[Step] = []
    for at, value in reversed(list(enumerate(ins))):
        if not t.grad[value]:
            continue
        if elements(t.dims[value]) == elements(dims) and t.dtype[value] == dtype:
            first.append(Step(Code.PASS, at) if passed else Step(Code.GRAD, at))
            continue
        full: tuple[int, ...] = ()
        if not passed:
            full = (temporary(t, dims, dtype, "gradient before reduction or cast"),)
            first.append(Step(Code.BORN, at, *full))
        then[:0] = _fitted(t, at, value, (dims, dtype), [Step(Code.DEAD, at, one) for one in full])
    return (*first, Step(Code.LEFT), *then) if then else tuple(first)


def _fitted(t: Tape, at: int, value: int, made: tuple[Dims, DType], ended: list[Step]) -> list[Step]:
    """The engine reduces a gradient of `made` dims and dtype to its input's dims, then casts it; `ended`: the full-size
    gradient dies once it is read."""
    dims, dtype = made
    small = elements(t.dims[value]) < elements(dims)
    scratch = column_scratch(t, dims, t.dims[value]) if small else ()
    if not small or t.dtype[value] == dtype:
        return [Step(Code.GRAD, at), *scratch, *ended]
    reduced = temporary(t, t.dims[value], dtype, "reduced gradient before cast")
    return [Step(Code.BORN, at, reduced), *scratch, *ended, Step(Code.GRAD, at), Step(Code.DEAD, at, reduced)]


def mul(t: Tape, x: int, y: int, name: str = "product") -> int:
    """Elementwise product; each factor is saved when the other needs a gradient."""
    dims, dtype = broadcast(t.dims[x], t.dims[y]), promote(t.dtype[x], t.dtype[y])
    gx, gy = t.grad[x], t.grad[y]
    out = t.fresh(dims, dtype, gx or gy, name)
    saves = ((x,) if gy else ()) + ((y,) if gx else ())
    return t.run(Prim("mul", (x, y), (out,), saves, gradients(t, (x, y), dims, dtype), ()))


def scale(t: Tape, x: int, name: str = "scaled") -> int:
    """Times or divided by a Python number; nothing is saved."""
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], name)
    return t.run(Prim("mul", (x,), (out,), (), GRAD0, ()))


def scale_into(t: Tape, x: int, factor: int) -> int:
    """x *= a tensor that needs no gradient: the product lies where x lay; the factor is saved."""
    return t.run(Prim("mul_", (x, factor), (t.alias(x),), (factor,) if t.grad[x] else (), GRAD0, ()))


def shift(t: Tape, x: int) -> int:
    """Plus a Python number; the gradient passes through."""
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "sum")
    return t.run(Prim("add", (x,), (out,), (), PASS0, ()))


def add(t: Tape, x: int, y: int, name: str = "sum") -> int:
    """Elementwise sum; nothing is saved, the gradient passes through where shape and dtype allow."""
    dims, dtype = broadcast(t.dims[x], t.dims[y]), promote(t.dtype[x], t.dtype[y])
    out = t.fresh(dims, dtype, t.grad[x] or t.grad[y], name)
    return t.run(Prim("add", (x, y), (out,), (), gradients(t, (x, y), dims, dtype, passed=True), ()))


def add_into(t: Tape, x: int, y: int) -> int:
    """x += y: the sum lies where x lay; y's gradient is the incoming one, cast where the dtypes differ."""
    out = t.alias(x)
    t.grad[out] = t.grad[x] or t.grad[y]
    return t.run(Prim("add_", (x, y), (out,), (), gradients(t, (x, y), t.dims[x], t.dtype[x], passed=True), ()))


def sub(t: Tape, x: int, y: int) -> int:
    """x - y; the gradient passes to x, and is negated at full size for y before either is reduced."""
    dims, dtype = broadcast(t.dims[x], t.dims[y]), promote(t.dtype[x], t.dtype[y])
    out = t.fresh(dims, dtype, t.grad[x] or t.grad[y], "difference")
    own = gradients(t, (x,), dims, dtype, passed=True)
    other = tuple(Step(s.code, 1, s.value) for s in gradients(t, (y,), dims, dtype))
    early = int(any(step.code is Code.LEFT for step in own))
    return t.run(Prim("sub", (x, y), (out,), (), (*other[:early], *own, *other[early:]), ()))


def square(t: Tape, x: int) -> int:
    """x.pow(2): saves x; backward makes x.pow(1) and 2 x beside the gradient."""
    grad = t.grad[x]
    out = t.fresh(t.dims[x], t.dtype[x], grad, "square")
    steps: tuple[Step, ...] = ()
    if grad:
        power = temporary(t, t.dims[x], t.dtype[x], "power in backward")
        twice = temporary(t, t.dims[x], t.dtype[x], "twice the power in backward")
        steps = (
            Step(Code.BORN, 0, power),
            Step(Code.BORN, 0, twice),
            Step(Code.GRAD, 0),
            Step(Code.DEAD, 0, power),
            Step(Code.DEAD, 0, twice),
        )
    return t.run(Prim("pow", (x,), (out,), (x,) if grad else (), steps, ()))


def power(t: Tape, x: int) -> int:
    """torch.pow(x, a number): saves x; backward makes its power less one, and a multiple of that, as for a square."""
    return square(t, x)


def mean(t: Tape, x: int) -> int:
    """Mean over the last dim, kept; the gradient is written out at full size."""
    dims = (*t.dims[x][:-1], Axis(Dim.ONE, 1))
    out = t.fresh(dims, t.dtype[x], t.grad[x], "mean")
    return t.run(Prim("mean", (x,), (out,), (), GRAD0, ()))


def cat(t: Tape, parts: Sequence[int], dims: Dims, name: str = "concatenation") -> int:
    """Concatenation; the gradients are views of the incoming one."""
    out = t.fresh(dims, t.dtype[parts[0]], any(t.grad[part] for part in parts), name)
    same = [t.dtype[part] == t.dtype[parts[0]] for part in parts]  # others' gradients are cast back
    steps = tuple(Step(Code.PASS if one else Code.GRAD, at) for at, one in enumerate(same))
    return t.run(Prim("cat", tuple(parts), (out,), (), steps, ()))


def part(t: Tape, x: int, dims: Dims) -> int:
    """A slice of the last dim (a view); backward makes a zero-filled gradient of the whole."""
    out = t.alias(x, dims)
    return t.run(Prim("slice", (x,), (out,), (), GRAD0, ()))


def taken(t: Tape, x: int, dims: Dims) -> int:
    """Parts picked by a list of their numbers, which becomes a tensor: a copy; the numbers are saved, and backward adds
    the gradient into zeros of the whole."""
    at = t.fresh((Axis(Dim.ONE, 1),), INT64, False, "picked")
    out = t.fresh(dims, t.dtype[x], t.grad[x], "parts")
    t.run(Prim("lift_fresh", (), (at,), (), (), ()))
    return t.run(Prim("index", (x, at), (out,), (at,) if t.grad[x] else (), GRAD0, ()))


def chunk(t: Tape, x: int, parts: Sequence[Dims]) -> list[int]:
    """Views of all parts from one node; backward concatenates their gradients."""
    outs = tuple(t.alias(x, dims) for dims in parts)
    t.run(Prim("split", (x,), outs, (), GRAD0, ()))
    return list(outs)


def rsqrt(t: Tape, x: int) -> int:
    """1 / sqrt(x): saves its result; backward makes its cube and half the gradient beside the gradient."""
    grad = t.grad[x]
    out = t.fresh(t.dims[x], t.dtype[x], grad, "inverse root")
    steps: tuple[Step, ...] = ()
    if grad:
        cubed = temporary(t, t.dims[x], t.dtype[x], "cube in backward")
        half = temporary(t, t.dims[x], t.dtype[x], "half the gradient in backward")
        steps = (
            Step(Code.BORN, 0, cubed),
            Step(Code.BORN, 0, half),
            Step(Code.GRAD, 0),
            Step(Code.DEAD, 0, cubed),
            Step(Code.DEAD, 0, half),
        )
    return t.run(Prim("rsqrt", (x,), (out,), (out,) if grad else (), steps, ()))


def softmax(t: Tape, x: int, dtype: DType) -> int:
    """Softmax in `dtype`; its result is saved. Only fp16 is read as fp32 inside the kernel, without a cast copy."""
    fused = t.dtype[x] == FP16 and dtype == FP32
    y = x if fused else to(t, x, dtype)
    out = t.fresh(t.dims[x], dtype, t.grad[x], "softmax")
    saves = (out,) if t.grad[x] else ()
    # CUDA's backward kernel reads gradient x result, a tensor of its own (aten/src/ATen/native/cuda/SoftMax.cu)
    product = temporary(t, t.dims[x], dtype, "softmax kernel: gradient times result")
    steps = (Step(Code.GRAD, 0), Step(Code.BORN, 0, product), Step(Code.DEAD, 0, product))
    return t.run(Prim("softmax", (y,), (out,), saves, steps, ()))


def matmul(t: Tape, a: int, b: int, dims: Dims, name: str) -> int:
    """Batched matrix product; each factor is saved when the other needs a gradient."""
    ga, gb = t.grad[a], t.grad[b]
    out = t.fresh(dims, t.dtype[a], ga or gb, name)
    saves = ((a,) if gb else ()) + ((b,) if ga else ())
    return t.run(Prim("bmm", (a, b), (out,), saves, (Step(Code.GRAD, 1), Step(Code.GRAD, 0)), ()))


def dropout(t: Tape, x: int, p: float) -> int:
    """Fused dropout: a bool mask is saved; at p = 0 the input itself is returned."""
    if not p:
        return x
    grad = t.grad[x]
    out = t.fresh(t.dims[x], t.dtype[x], grad, "dropout")
    mask = t.fresh(t.dims[x], BOOL, False, "dropout mask")
    t.run(Prim("native_dropout", (x,), (mask, out), (mask,) if grad else (), GRAD0, ()))
    return out

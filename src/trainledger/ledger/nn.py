"""torch.nn.functional on a tape: linear, norms, embedding, with autocast's casts.

Sources: torch/csrc/autograd and aten/src/ATen/native (Linear.cpp, layer_norm.cpp, Embedding.cu), aten/src/ATen/
autocast_mode.cpp (v2.4 to v2.13): linear and matmul cast to the low dtype, layer_norm, softmax and losses to fp32;
the cast of a parameter that needs a gradient is kept until the autocast region ends.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.kernels import EMBEDDING_BACKWARD
from trainledger.ledger.aten import add, column_scratch, temporary, to
from trainledger.ledger.tape import Code, Prim, Step, Tape


def lowered(t: Tape, x: int) -> int:
    """A tensor as an autocast matrix product reads it: cast to the low dtype; a fp32 parameter's is cached."""
    low = t.autocast
    if low is None or low == t.dtype[x] or FP32 not in (low, t.dtype[x]):
        return x
    if low == FP32:  # CUDA's autocast takes fp32 too: whatever is not in it yet is cast, and nothing is cached
        return to(t, x, low)
    weight = t.leaf.get(x)
    if x in t.leaves and t.grad[x]:  # the input that a reentrant checkpoint detaches is a leaf too
        if x not in t.casts:
            t.casts[x] = to(t, x, low)
        return t.casts[x]
    if weight is None or not t.grad[x]:
        return to(t, x, low)
    if weight not in t.cached:
        name, t.scope = t.scope, f"{weight.name} (autocast)"
        t.cached[weight] = to(t, x, low)
        t.scope = name
    return t.cached[weight]


def raised(t: Tape, x: int) -> int:
    """A tensor as autocast's fp32 operations read it."""
    return to(t, x, FP32) if t.autocast is not None else x


def linear(t: Tape, x: int, dims: Dims, weight: int, bias: int | None = None) -> int:
    """x W^T + b: saves x when the weight is trained, and the weight when x needs a gradient."""
    # C++ evaluates the casts of an autocast operation's arguments from the last to the first
    low_bias = None if bias is None else lowered(t, bias)
    w = lowered(t, weight)
    return _product(t, (lowered(t, x), w), dims, low_bias)


def flat_linear(t: Tape, x: int, dims: Dims, weight: int, bias: int | None = None) -> int:
    """x W^T + b of a matrix of tokens: the input's gradient is a product of its own."""
    low_bias = None if bias is None else lowered(t, bias)
    w = lowered(t, weight)
    return _product(t, (lowered(t, x), w), dims, low_bias, Code.GRAD)


def apart_linear(t: Tape, x: int, dims: Dims, weight: int, bias: int | None = None) -> int:
    """x @ W.T + b: autocast casts the weight's transposed view, which it does not keep; the bias is added after."""
    low = t.autocast
    w = weight if low is None or FP32 not in (low, t.dtype[weight]) else to(t, weight, low)
    made = _product(t, (lowered(t, x), w), dims, None)
    return made if bias is None else add(t, made, bias)


def conv1d(t: Tape, x: int, dims: Dims, weight: int, bias: int | None = None) -> int:
    """GPT-2's Conv1D, addmm(b, x, W): as a linear layer, but W, the last argument, is cast first, then x, then b."""
    w = lowered(t, weight)
    x = lowered(t, x)
    return _product(t, (x, w), dims, None if bias is None else lowered(t, bias))


def _product(t: Tape, factors: tuple[int, int], dims: Dims, bias: int | None, code: Code = Code.VIEW) -> int:
    """x W^T + b of tensors that are cast already; `code` makes the input's gradient."""
    x, w = factors
    ins = factors if bias is None else (*factors, bias)
    grad = any(t.grad[value] for value in ins)
    out = t.fresh(dims, t.dtype[x], grad, "output")
    saves = ((x,) if t.grad[w] else ()) + ((w,) if t.grad[x] else ())
    # of more than two dims the input's gradient is a view of a flattened product, which cannot take another in place
    first = Step(code, 0)
    steps: tuple[Step, ...] = (Step(Code.GRAD, 1), first)
    if bias is not None:
        added = (Step(Code.GRAD, len(ins) - 1), *_bias_scratch(t, bias, out))
        steps = (first, Step(Code.GRAD, 1), Step(Code.LEFT), *added)  # the engine sums over tokens
    return t.run(Prim("linear", ins, (out,), saves, steps, ()))


def _bias_scratch(t: Tape, bias: int, out: int) -> tuple[Step, ...]:
    """Scratch memory of the sum over tokens that a bias's gradient is."""
    columns = elements(t.dims[bias])
    rows = (Axis(Dim.ROWS, elements(t.dims[out]) // columns), Axis(Dim.COLUMNS, columns))
    return column_scratch(t, rows, t.dims[bias]) if t.grad[bias] else ()


def layer_norm(t: Tape, x: int, weight: int | None, bias: int | None) -> int:
    """torch.nn.LayerNorm: saves its input and fp32 mean and inverse deviation of each row."""
    bias, weight = (value if value is None else raised(t, value) for value in (bias, weight))
    x = raised(t, x)
    rows = (*t.dims[x][:-1], Axis(Dim.ONE, 1))
    ins = tuple(value for value in (x, weight, bias) if value is not None)
    grad = any(t.grad[value] for value in ins)
    out = t.fresh(t.dims[x], t.dtype[x], grad, "output")
    mean = t.fresh(rows, FP32, False, "mean")
    rstd = t.fresh(rows, FP32, False, "inverse deviation")
    saves = (x, mean, rstd, *ins[1:]) if grad else ()
    steps = tuple(Step(Code.GRAD, at) for at in range(len(ins)))
    return t.run(Prim("native_layer_norm", ins, (out, mean, rstd), saves, steps, ()))


def embedding(t: Tape, ids: int, table: int, dims: Dims, turned: bool = False) -> int:
    """Rows of a table; saves the ids, backward makes a dense gradient of the whole table. `turned`: the rows' gradient
    arrives with its dims in another order than they lie in, and is copied first."""
    grad = t.grad[table]
    out = t.fresh(dims, t.dtype[table], grad, "output")
    steps = _sorted_backward(t, ids, table) if grad else ()
    if turned and grad:
        copied = temporary(t, dims, t.dtype[table], "gradient row by row")
        steps = (Step(Code.BORN, 0, copied), *steps, Step(Code.DEAD, 0, copied))
    return t.run(Prim("embedding", (table, ids), (out,), (ids,) if grad else (), steps, ()))


def _sorted_backward(t: Tape, ids: int, table: int) -> tuple[Step, ...]:
    """The gradient of a table; from many ids on they are sorted first, and rows of equal ids summed in parts."""
    row, count = EMBEDDING_BACKWARD, elements(t.dims[ids])
    if count <= row.small:
        return (Step(Code.GRAD, 0),)
    weight = t.leaf.get(table)
    entries, *width = weight.slope if weight else t.dims[table]
    segments = min(count, entries.size)
    partial = Axis(Dim.ROWS, count // row.ids_per_partial + segments)

    def made(size: int, what: str) -> int:
        return temporary(t, (Axis(Dim.ELEMENTS, size),), INT64, f"embedding kernel: {what}")

    order = [made(count, what) for what in ("sorted ids", "their places")]
    places = made(count, "places before the sort")
    after = [made(count, "where segments start")]
    after += [made(segments, what) for what in ("parts of each segment", "where a segment's parts start")]
    after.append(made(partial.size, "where parts start"))
    after.append(temporary(t, (partial, *width), FP32, "embedding kernel: sums of parts"))
    return (
        *(Step(Code.BORN, 0, one) for one in (*order, places)),
        Step(Code.DEAD, 0, places),
        Step(Code.GRAD, 0),
        *(Step(Code.BORN, 0, one) for one in after),
        *(Step(Code.DEAD, 0, one) for one in (*after, *order)),
    )

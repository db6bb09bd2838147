"""PyTorch's collectives between the operations of a model that is spread over ranks, as primitives.

A collective along another dim than the first needs its parts side by side: a copy before a sum is scattered, and one
after a gather, but for one sequence alone in newer releases. What is added up is cloned first.
Sources: torch/distributed/_functional_collectives.py (all_gather_tensor, reduce_scatter_tensor, all_reduce),
tensor/_redistribute.py (Redistribute), tensor/placement_types.py (v2.4 to v2.13).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.collectives import VIEWS
from trainledger.facts.dtypes import DType
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.float8 import cast
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.operations_parallel import Collective, Copied, Divided, Gathered, Summed

GATHERED, SCATTERED = "all_gather", "reduce_scatter"


def apply(f: Frame, spec: Collective, x: int) -> int:
    """The collective's result."""
    match spec:
        case Gathered(_, Dim.SEQUENCE):
            return _whole_sequence(f, x, spec)
        case Gathered(ranks, dim, _, _):
            return _whole(f.tape, x, (ranks, dim))
        case Summed(_, True):
            return _scattered(f, x, spec)
        case Summed():
            return _added(f.tape, x)
        case Copied():
            return _copied(f.tape, x)
        case Divided(ranks):
            return aten.part(f.tape, x, _part(f.tape.dims[x], Dim.SEQUENCE, ranks))


def _sized(dims: Dims, dim: Dim, by: int) -> Dims:
    """The dims with one of them `by` times as long."""
    return tuple(Axis(one.dim, one.size * by) if one.dim is dim else one for one in dims)


def _part(dims: Dims, dim: Dim, by: int) -> Dims:
    return tuple(Axis(one.dim, one.size // by) if one.dim is dim else one for one in dims)


def _seen(f: Frame) -> bool:
    """Whether parts of the sequence lie in order as they are gathered."""
    return f.setting.batch == 1 and at_least(f.setting.torch or None, VIEWS.since)


def _beside(t: Tape, dims: Dims, dtype: DType, name: str) -> tuple[Step, ...]:
    """A gradient made while a tensor of these dims lies beside it."""
    made = aten.temporary(t, dims, dtype, name)
    return (Step(Code.BORN, 0, made), Step(Code.GRAD, 0), Step(Code.DEAD, 0, made))


def _whole_sequence(f: Frame, x: int, spec: Gathered) -> int:
    """All parts of the sequence, cast before where `low` says so; backward adds up and scatters, in the input's dtype.
    Products that gather as they run leave the parts in order."""
    t, dims = f.tape, _sized(f.tape.dims[x], Dim.SEQUENCE, spec.ranks)
    sent = x if spec.low is None else cast(t, x, spec.low, f.software.compiled)
    made = t.fresh(dims, t.dtype[sent], t.grad[x], "gathered")
    out = t.alias(made) if spec.fused or _seen(f) else t.fresh(dims, t.dtype[sent], t.grad[x], "whole sequence")
    t.piped = t.piped or spec.fused
    t.dtype[made] = t.dtype[out] = t.dtype[x]  # of their gradients
    steps = _beside(t, dims, t.dtype[x], "gradient by parts of the sequence")
    t.run(Prim(GATHERED, tuple(dict.fromkeys((x, sent))), (made,), (), steps, ()))
    t.run(Prim("chunk, cat", (made,), (out,), (), (Step(Code.PASS, 0),), ()))
    t.end([made] if sent == x else [made, sent])
    t.wrapped.add(out)
    return out


def _whole(t: Tape, x: int, how: tuple[int, Dim]) -> int:
    """All parts along another dim; of the gradient each rank takes its own."""
    ranks, dim = how
    dims = _sized(t.dims[x], dim, ranks)
    made = t.fresh(dims, t.dtype[x], t.grad[x], "gathered")
    t.run(Prim(GATHERED, (x,), (made,), (), (Step(Code.GRAD, 0),), ()))
    out = t.fresh(dims, t.dtype[x], t.grad[x], "whole")
    t.run(Prim("chunk, cat", (made,), (out,), (), (Step(Code.PASS, 0),), ()))
    t.end([x, made])
    return out


def _scattered(f: Frame, x: int, spec: Summed) -> int:
    """The sum of this rank's part of the sequence; backward gathers, cast before where `low` says so. A product whose
    parts are sent as they are made has them in one tensor, which is what it would have returned."""
    t, dims, low = f.tape, f.tape.dims[x], spec.low
    side = t.alias(x) if spec.fused else t.fresh(dims, t.dtype[x], t.grad[x], "by parts of the sequence")
    t.run(Prim("chunk, cat", (x,), (side,), (), (Step(Code.PASS, 0),), ()))
    out = t.fresh(_part(dims, Dim.SEQUENCE, spec.ranks), t.dtype[x], t.grad[x], "part of the sum")
    t.dtype[side] = t.dtype[x] if low is None else low.dtype  # of its gradient
    t.piped = t.piped or spec.fused
    steps = (Step(Code.GRAD, 0),) if spec.fused or _seen(f) else _beside(t, dims, t.dtype[side], "gathered gradient")
    if low is not None:
        sent = aten.temporary(t, t.dims[out], low.dtype, "gradient in 8 bits")
        steps = (Step(Code.BORN, 0, sent), *steps, Step(Code.DEAD, 0, sent))
    t.run(Prim(SCATTERED, (side,), (out,), (), steps, ()))
    t.end([x, side])
    return out


def _added(t: Tape, x: int) -> int:
    """The sum over ranks."""
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "sum over ranks")
    t.run(Prim("all_reduce", (x,), (out,), (), (Step(Code.PASS, 0),), ()))
    t.end([x])
    return out


def _copied(t: Tape, x: int) -> int:
    """The tensor itself; of its gradient, the sum over ranks."""
    out = t.alias(x)
    return t.run(Prim("copied to ranks", (x,), (out,), (), (Step(Code.GRAD, 0),), ()))

"""PyTorch's collectives between the operations of a model that is spread over ranks, as primitives.

A collective along another dim than the first needs its parts side by side: a copy before a sum is scattered, and one
after a gather, but for one sequence alone in newer releases. What is added up is cloned first.
Sources: torch/distributed/_functional_collectives.py (all_gather_tensor, reduce_scatter_tensor, all_reduce),
tensor/_redistribute.py (Redistribute), tensor/placement_types.py (v2.4 to v2.13).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.collectives import VIEWS
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.operations_parallel import Collective, Copied, Divided, Gathered, Summed

SCATTERED = "reduce_scatter"


def apply(f: Frame, spec: Collective, x: int) -> int:
    """The collective's result."""
    match spec:
        case Gathered(ranks, Dim.SEQUENCE):
            return _whole_sequence(f, x, ranks)
        case Gathered(ranks, dim):
            return _whole(f.tape, x, (ranks, dim))
        case Summed(ranks, True):
            return _scattered(f, x, ranks)
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


def _beside(t: Tape, dims: Dims, x: int, name: str) -> tuple[Step, ...]:
    """A gradient made while a tensor of these dims lies beside it."""
    made = aten.temporary(t, dims, t.dtype[x], name)
    return (Step(Code.BORN, 0, made), Step(Code.GRAD, 0), Step(Code.DEAD, 0, made))


def _whole_sequence(f: Frame, x: int, ranks: int) -> int:
    """All parts of the sequence; backward adds up and scatters."""
    t, dims = f.tape, _sized(f.tape.dims[x], Dim.SEQUENCE, ranks)
    made = t.fresh(dims, t.dtype[x], t.grad[x], "gathered")
    steps = _beside(t, dims, x, "gradient by parts of the sequence")
    t.run(Prim("all_gather", (x,), (made,), (), steps, ()))
    out = t.alias(made) if _seen(f) else t.fresh(dims, t.dtype[x], t.grad[x], "whole sequence")
    t.run(Prim("chunk, cat", (made,), (out,), (), (Step(Code.PASS, 0),), ()))
    t.end([made])
    t.wrapped.add(out)
    return out


def _whole(t: Tape, x: int, how: tuple[int, Dim]) -> int:
    """All parts along another dim; of the gradient each rank takes its own."""
    ranks, dim = how
    dims = _sized(t.dims[x], dim, ranks)
    made = t.fresh(dims, t.dtype[x], t.grad[x], "gathered")
    t.run(Prim("all_gather", (x,), (made,), (), (Step(Code.GRAD, 0),), ()))
    out = t.fresh(dims, t.dtype[x], t.grad[x], "whole")
    t.run(Prim("chunk, cat", (made,), (out,), (), (Step(Code.PASS, 0),), ()))
    t.end([x, made])
    return out


def _scattered(f: Frame, x: int, ranks: int) -> int:
    """The sum of this rank's part of the sequence; backward gathers."""
    t, dims = f.tape, f.tape.dims[x]
    side = t.fresh(dims, t.dtype[x], t.grad[x], "by parts of the sequence")
    t.run(Prim("chunk, cat", (x,), (side,), (), (Step(Code.PASS, 0),), ()))
    steps = (Step(Code.GRAD, 0),) if _seen(f) else _beside(t, dims, x, "gathered gradient")
    out = t.fresh(_part(dims, Dim.SEQUENCE, ranks), t.dtype[x], t.grad[x], "part of the sum")
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

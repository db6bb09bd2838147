"""xIELU on a tape, as Transformers writes it out where no kernel of its own is installed (Apertus).

Sources: transformers/activations.py, XIELUActivation._xielu_python (5.0.0 to 5.24.0); torch (v2.13)
tools/autograd/derivatives.yaml: where, minimum, expm1, softplus; aten/src/ATen/autocast_mode.h: softplus and expm1 run
in fp32.
"""

from __future__ import annotations

from trainledger.facts.dtypes import BOOL
from trainledger.ledger import aten
from trainledger.ledger.nn import raised
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead


def xielu(t: Tape, x: int, positive: int, negative: int) -> int:
    """where(x > 0, p x x + b x, (expm1(min(x, e)) - x) n + b x); b and e are buffers of one element."""
    p = _softplus(t, positive)
    n = aten.shift(t, _softplus(t, negative))
    where = aten.plain(t, "positive", t.dims[x], BOOL, (x,))
    above = aten.add(t, aten.mul(t, aten.mul(t, p, x), x), _times(t, x))
    low = _minimum(t, x)
    curve = _expm1(t, raised(t, low))
    t.end([low])
    below = aten.add(t, aten.mul(t, aten.sub(t, curve, x), n), _times(t, x))
    dtype = aten.promote(t.dtype[above], t.dtype[below])
    out = t.fresh(t.dims[x], dtype, t.grad[above] or t.grad[below], "xielu")
    zeros = [aten.temporary(t, (), dtype, "zero in backward") for _ in (above, below)]
    steps = tuple(step for at, zero in enumerate(zeros, 1) for step in (*born(zero), Step(Code.GRAD, at), *dead(zero)))
    t.run(Prim("where", (where, above, below), (out,), (where,) if t.grad[out] else (), steps, ()))
    t.end([x, p, n])
    return out


def _softplus(t: Tape, x: int) -> int:
    return aten.unary(t, "softplus", raised(t, x), saves_in=True)


def _times(t: Tape, x: int) -> int:
    """Times a buffer of one element, which decides no dtype."""
    return aten.mul(t, t.outside((), t.dtype[x], False), x, "scaled")


def _minimum(t: Tape, x: int) -> int:
    """The smaller of x and a number: saves x; backward halves the gradient where both are equal."""
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "minimum")
    equal, larger = (aten.temporary(t, t.dims[x], BOOL, f"{word} in backward") for word in ("equal", "larger"))
    half = aten.temporary(t, t.dims[x], t.dtype[x], "half the gradient in backward")
    steps = (*born(half, equal), Step(Code.GRAD, 0), *born(larger), *dead(larger, half, equal))
    return t.run(Prim("minimum", (x,), (out,), (x,) if t.grad[x] else (), steps, ()))


def _expm1(t: Tape, x: int) -> int:
    """exp(x) - 1: saves its result, to which backward adds one."""
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "expm1")
    one = aten.temporary(t, t.dims[x], t.dtype[x], "result plus one in backward")
    steps = (*born(one), Step(Code.GRAD, 0), *dead(one))
    return t.run(Prim("expm1", (x,), (out,), (out,) if t.grad[x] else (), steps, ()))

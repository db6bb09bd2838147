"""Activation functions on a tape: one fused kernel each, or formulas that Transformers writes out in Python.

Sources: transformers/activations.py (5.24.0); tools/autograd/derivatives.yaml and aten/src/ATen/autocast_mode.h (v2.4
to v2.13): under autocast torch.pow runs in fp32.
"""

from __future__ import annotations

from trainledger.ledger.aten import add, mul, power, scale, shift, square, temporary, unary
from trainledger.ledger.nn import raised
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import ActKind

_SAVES_RESULT = (ActKind.RELU, ActKind.TANH, ActKind.SIGMOID)


def activation(t: Tape, kind: ActKind, x: int) -> int:
    """The function's result; the primitives run in the order in which Python evaluates the formula."""
    if kind is ActKind.GELU_NEW:
        return _gelu_new(t, x)
    if kind is ActKind.GELU_BLOOM:
        return _gelu_bloom(t, x)
    if kind is ActKind.GELU_FAST:
        return _gelu_fast(t, x)
    if kind is ActKind.RELU_SQUARED:
        return _relu_squared(t, x)
    return unary(t, kind.value, x, saves_in=kind not in _SAVES_RESULT, saves_out=kind in _SAVES_RESULT)


def _relu_squared(t: Tape, x: int) -> int:
    """torch.square(relu(x)); the input and the function between have names."""
    positive = unary(t, ActKind.RELU.value, x, saves_out=True)
    out = square(t, raised(t, positive))
    t.end([x, positive])
    return out


def _gelu_new(t: Tape, x: int) -> int:
    """0.5 * x * (1.0 + tanh(c * (x + 0.044715 * pow(x, 3))))."""
    half = scale(t, x, "half")
    third = scale(t, power(t, raised(t, x)), "scaled cube")
    inner = scale(t, add(t, x, third, "inner sum"), "inner")
    outer = shift(t, unary(t, "tanh", inner, saves_out=True))
    return mul(t, half, outer)


def _gelu_fast(t: Tape, x: int) -> int:
    """0.5 * x * (1.0 + tanh(x * c * (1.0 + 0.044715 * x * x)))."""
    half = scale(t, x, "half")
    front = scale(t, x, "scaled")
    inner = shift(t, mul(t, scale(t, x, "scaled"), x, "scaled square"))
    outer = shift(t, unary(t, "tanh", mul(t, front, inner, "inner"), saves_out=True))
    return mul(t, half, outer)


def _gelu_bloom(t: Tape, x: int) -> int:
    """x * 0.5 * (1.0 + tanh(0.79788456 * x * (1 + 0.044715 * x * x))), which autograd does not see."""
    plain = t.alias(x)
    t.grad[plain] = False
    t.run(Prim("detach", (x,), (plain,), (), (), ()))
    half = scale(t, plain, "half")
    front = scale(t, plain, "scaled")
    inner = shift(t, mul(t, scale(t, plain, "scaled"), plain, "scaled square"))
    outer = shift(t, unary(t, "tanh", mul(t, front, inner, "inner")))
    out = t.fresh(t.dims[x], t.dtype[x], t.grad[x], "gelu")
    saves = (x,) if t.grad[x] else ()
    return t.run(Prim("gelu", (x, half, outer), (out,), saves, _gelu_bloom_back(t, x) if saves else (), ()))


def _gelu_bloom_back(t: Tape, x: int) -> tuple[Step, ...]:
    """0.5 * x * ((1 - th * th) * (a + b * x * x)) + 0.5 * (1 + th), times the gradient; th as in forward."""
    names = (
        "scaled, scaled again, square, sum, inner, tanh, half, squared tanh, rest, times b, square by b, sum with a, "
    )
    names += "product, left, one more, right, slope"
    made = [temporary(t, t.dims[x], t.dtype[x], f"{one} in backward") for one in names.split(", ")]
    front, again, square_, inner, whole, tanh, half, squared, rest, by, both, more, product, left, one, right, slope = (
        made
    )
    order = [
        front, again, square_, -again, inner, -square_, whole, -front, -inner, tanh, -whole, half, squared, rest,
        -squared, by, both, -by, more, -both, product, -rest, -more, left, -half, -product, one, right, -one, slope,
        -left, -right,
    ]  # fmt: skip
    steps = [Step(Code.BORN if number > 0 else Code.DEAD, 0, abs(number)) for number in order]
    return (*steps, Step(Code.GRAD, 0), Step(Code.DEAD, 0, slope), Step(Code.DEAD, 0, tanh))

"""A normed, gated feed-forward on a tape, as tests of compiled layers take it."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32
from trainledger.ledger import aten, nn
from trainledger.ledger.tape import Tape

TOKENS, WIDTH, INNER = 1024, 256, 512


def gated_layer() -> tuple[Tape, int, int]:
    """down(silu(gate(norm(x))) * up(norm(x))): the tape, its input and its result."""
    tape = Tape()
    tokens, width, inner = Axis(Dim.TOKENS, TOKENS), Axis(Dim.HIDDEN, WIDTH), Axis(Dim.FFN, INNER)
    x = tape.inherit((tokens, width), BF16, True, "input")
    scale = tape.outside((width,), BF16, True)
    tape.leaf[scale] = None  # type: ignore[assignment]
    gate, up = (tape.outside((inner, width), BF16, True) for _ in range(2))
    down = tape.outside((width, inner), BF16, True)
    high = aten.to(tape, x, FP32)
    inv = aten.rsqrt(tape, aten.shift(tape, aten.mean(tape, aten.square(tape, high))))
    normed = aten.mul(tape, scale, aten.to(tape, aten.mul(tape, high, inv), BF16))
    act = aten.unary(tape, "silu", nn.linear(tape, normed, (tokens, inner), gate), saves_in=True)
    product = aten.mul(tape, act, nn.linear(tape, normed, (tokens, inner), up))
    return tape, x, nn.linear(tape, product, (tokens, width), down)

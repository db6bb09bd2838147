"""What is kept of a compiled layer: operands of products, and nothing that elementwise functions make again."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32
from trainledger.ledger import aten, nn
from trainledger.ledger.compiled import compile_layer
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward

TOKENS, WIDTH, INNER = 1024, 256, 512


def gated(compiled: bool) -> int:
    """Bytes kept of a normed, gated feed-forward."""
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
    g = nn.linear(tape, normed, (tokens, inner), gate)
    act = aten.unary(tape, "silu", g, saves_in=True)
    product = aten.mul(tape, act, nn.linear(tape, normed, (tokens, inner), up))
    out = nn.linear(tape, product, (tokens, width), down)
    if compiled:
        compile_layer(tape)
    held = run_forward(tape, frozenset({out, x}), saving=True).held
    return sum(tape.storages[one].size for one in held if one != EXTERNAL)


def test_fp32_casts_and_the_activation_are_made_again() -> None:
    row = 4 * TOKENS
    eager = 4 * WIDTH + 2 * WIDTH + 2 * WIDTH + 4 * 2 * INNER
    assert gated(False) == TOKENS * eager + row
    assert gated(True) == TOKENS * (2 * WIDTH + 2 * WIDTH + 3 * 2 * INNER) + row
